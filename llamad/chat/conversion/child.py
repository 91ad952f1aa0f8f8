"""The schema converter, which runs as a child process: it reads requests from stdin and writes replies to stdout.

Single-threaded; only process.py starts it and talks to it. Exits when stdin closes.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import sys
from typing import Any

import msgspec

from llamad.chat.conversion.process import CPU_SECONDS_MAX, Conversion, ToolCall, read_frame, write_frame
from llamad.chat.parsing.lazy_grammar import LazyGrammar, TriggerError, lazy_grammar
from llamad.chat.parsing.syntax.grammar import ToolError
from llamad.chat.parsing.tool_grammar import answer_grammar, tool_grammar
from llamad.chat.schema import SchemaError, to_grammar

MEMORY_BYTES_MAX = 1 << 30
NICE = 10  # generating tokens has priority over converting schemas


def main() -> None:
    os.nice(NICE)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # it is meant for the front
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    gc.disable()  # the loop below collects between two requests
    gc.freeze()
    requests, replies = sys.stdin.buffer, sys.stdout.buffer
    while (frame := read_frame(requests)) is not None:
        # A conversion that takes longer kills the process, which tells process.py why.
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS_MAX)
        reply = _converted(frame[:1], frame[1:])
        signal.setitimer(signal.ITIMER_PROF, 0)
        write_frame(replies, msgspec.json.encode(reply))
        del frame, reply
        gc.collect()


def _converted(kind: bytes, data: bytes) -> Conversion:
    try:
        if kind == b"t":
            return Conversion(text=_tool_grammar(msgspec.json.decode(data, type=ToolCall)))
        if kind in (b"a", b"b"):
            return _answer_grammar(*msgspec.json.decode(data, type=tuple[ToolCall, Any]), strict=kind == b"a")
        if kind == b"l":
            request = msgspec.json.decode(data, type=LazyGrammar)
            return Conversion(text=lazy_grammar(request.text, request.lazy))
        text, warnings = to_grammar(msgspec.json.decode(data), strict=kind == b"s")
        return Conversion(text=text, warnings=warnings)
    except ToolError as error:
        return Conversion(tools=str(error))
    except TriggerError as error:
        return Conversion(triggers=str(error))
    except SchemaError as error:
        return Conversion(pointer=error.pointer, keyword=error.keyword, reason=error.reason)
    except MemoryError:
        return Conversion(pointer="#", reason="the schema takes too much memory to convert; simplify it")


def _tool_grammar(request: ToolCall) -> str:
    return tool_grammar(
        request.format,
        request.tools,
        choice=request.choice,
        parallel=request.parallel,
        starts_in_reasoning=request.starts_in_reasoning,
    )


def _answer_grammar(request: ToolCall, schema: Any, *, strict: bool) -> Conversion:
    text, warnings = answer_grammar(
        request.format,
        request.tools,
        schema,
        parallel=request.parallel,
        starts_in_reasoning=request.starts_in_reasoning,
        strict=strict,
    )
    return Conversion(text=text, warnings=warnings)


if __name__ == "__main__":
    main()
