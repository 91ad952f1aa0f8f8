"""The schema converter, run as a child process: requests on stdin, answers on stdout.

Single-threaded; only process.py starts it and talks to it. Exits when stdin closes.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import sys
from typing import IO, Any

import msgspec

from llamad.chat.conversion.process import CPU_SECONDS_MAX, Answer, ToolCall, read_frame, write_frame
from llamad.chat.parsing.lazy_grammar import LazyGrammar, TriggerError, lazy_grammar
from llamad.chat.parsing.syntax.grammar import ToolError
from llamad.chat.parsing.tool_grammar import answer_grammar, tool_grammar
from llamad.chat.schema import SchemaError, to_grammar

MEMORY_BYTES_MAX = 1 << 30
NICE = 10  # generating tokens has priority over converting schemas


def main() -> None:
    os.nice(NICE)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # the front's
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    gc.disable()  # collects below, between two requests
    gc.freeze()
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    while (frame := read_frame(asked)) is not None:
        # Kills the process, which is the answer then.
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS_MAX)
        answer = _answer(frame[:1], frame[1:])
        signal.setitimer(signal.ITIMER_PROF, 0)
        _send(answers, answer)
        del frame, answer
        gc.collect()


def _answer(kind: bytes, data: bytes) -> Answer:
    try:
        if kind == b"t":
            return Answer(text=_tool_grammar(msgspec.json.decode(data, type=ToolCall)))
        if kind in (b"a", b"b"):
            return _answer_grammar(*msgspec.json.decode(data, type=tuple[ToolCall, Any]), strict=kind == b"a")
        if kind == b"l":
            asked = msgspec.json.decode(data, type=LazyGrammar)
            return Answer(text=lazy_grammar(asked.text, asked.lazy))
        text, warnings = to_grammar(msgspec.json.decode(data), strict=kind == b"s")
        return Answer(text=text, warnings=warnings)
    except ToolError as error:
        return Answer(tools=str(error))
    except TriggerError as error:
        return Answer(triggers=str(error))
    except SchemaError as error:
        return Answer(pointer=error.pointer, keyword=error.keyword, reason=error.reason)
    except MemoryError:
        return Answer(pointer="#", reason="the schema takes too much memory to convert; simplify it")


def _tool_grammar(asked: ToolCall) -> str:
    return tool_grammar(
        asked.format,
        asked.tools,
        choice=asked.choice,
        parallel=asked.parallel,
        starts_in_reasoning=asked.starts_in_reasoning,
    )


def _answer_grammar(asked: ToolCall, schema: Any, *, strict: bool) -> Answer:
    text, warnings = answer_grammar(
        asked.format,
        asked.tools,
        schema,
        parallel=asked.parallel,
        starts_in_reasoning=asked.starts_in_reasoning,
        strict=strict,
    )
    return Answer(text=text, warnings=warnings)


def _send(to: IO[bytes], answer: Answer) -> None:
    write_frame(to, msgspec.json.encode(answer))


if __name__ == "__main__":
    main()
