"""Converts schemas in a child process, so that a hostile schema cannot block the daemon's interpreter.
Grammars of tool calls and lazy grammars are made there, too, because they contain schemas and patterns.

A call blocks its thread, so the event loop must not make one. The child starts with the first schema, is reused, and is
killed when a conversion takes too long.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec

from llamad.chat.parsing import Format
from llamad.chat.parsing.lazy_grammar import TriggerError
from llamad.chat.parsing.syntax.tools import function_of
from llamad.chat.schema.errors import SchemaError

CPU_SECONDS_MAX = 5.0  # for one conversion; ordinary schemas take milliseconds
_LENGTH_BYTES = 8


class ToolCall(msgspec.Struct):
    """The arguments of tool_grammar(). The child finds the class of the format by its name."""

    format: Format
    tools: list[Any]
    choice: str
    parallel: bool
    starts_in_reasoning: bool

    @property
    def has_strict(self) -> bool:
        return any(function_of(tool).get("strict") is True for tool in self.tools)

    def without_schemas(self) -> ToolCall:
        """Return the same tools with any arguments allowed."""
        names = [function_of(tool).get("name") for tool in self.tools]
        return msgspec.structs.replace(self, tools=[{"name": name, "parameters": {}} for name in names])


class Conversion(msgspec.Struct, omit_defaults=True):
    """The reply of the child: a grammar, or what is wrong with the schema, the tools or the triggers."""

    text: str = ""
    warnings: list[str] = []
    pointer: str = ""
    keyword: str = ""
    reason: str = ""
    tools: str = ""
    triggers: str = ""


class ToolsError(ValueError):
    """The tools cannot be turned into a grammar; the text names the field."""


def read_frame(stream: IO[bytes]) -> bytes | None:
    """Read one message; return None if the other side has exited."""
    head = stream.read(_LENGTH_BYTES)
    if len(head) < _LENGTH_BYTES:
        return None
    length = int.from_bytes(head, "little")
    data = stream.read(length)
    return data if len(data) == length else None


def write_frame(stream: IO[bytes], data: bytes) -> None:
    stream.write(len(data).to_bytes(_LENGTH_BYTES, "little"))
    stream.write(data)
    stream.flush()


class Process:
    """One child process. One thread at a time may use it; any thread may call close()."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None

    def convert(self, schema: bytes, *, strict: bool) -> tuple[str, list[str]]:
        """Call to_grammar() in the child, with a schema as JSON. Raises SchemaError, and OSError if the child cannot
        run."""
        reply = self._ask(b"s" if strict else b"w", schema)
        return reply.text, reply.warnings

    def tool_grammar(self, request: bytes) -> str:
        """Call tool_grammar() in the child, with a ToolCall as JSON. Raises ToolsError and OSError."""
        try:
            return self._ask(b"t", request).text
        except SchemaError as error:  # it took too much time or memory
            raise ToolsError(error.reason) from None

    def answer_grammar(self, request: bytes, schema: bytes, *, strict: bool) -> tuple[str, list[str]]:
        """Call answer_grammar() in the child, with a ToolCall and a schema as JSON. Raises ToolsError, SchemaError and
        OSError."""
        reply = self._ask(b"a" if strict else b"b", b"[" + request + b"," + schema + b"]")
        return reply.text, reply.warnings

    def lazy_grammar(self, request: bytes) -> str:
        """Call lazy_grammar() in the child, with a LazyGrammar as JSON. Raises TriggerError and OSError."""
        try:
            return self._ask(b"l", request).text
        except SchemaError as error:
            raise TriggerError(error.reason) from None

    def _ask(self, kind: bytes, data: bytes) -> Conversion:
        child = self._started()
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            write_frame(child.stdin, kind + data)
            frame = read_frame(child.stdout)
        except (OSError, ValueError):  # it has died, or close() has closed the pipes
            frame = None
        if frame is None:
            raise self._ended(child)
        reply = msgspec.json.decode(frame, type=Conversion)
        if reply.reason:
            raise SchemaError(reply.pointer, reply.keyword, reply.reason)
        if reply.tools:
            raise ToolsError(reply.tools)
        if reply.triggers:
            raise TriggerError(reply.triggers)
        return reply

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is None or self._child.poll() is not None:
            self.close()
            root = str(Path(__file__).parents[3])
            paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", "llamad.chat.conversion.child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                start_new_session=True,  # the daemon handles signals from the terminal
            )
        return self._child

    def _ended(self, child: subprocess.Popen[bytes]) -> Exception:
        status = child.wait()  # its pipe is closed, so it is exiting
        self.close()
        if status == -signal.SIGPROF:
            return SchemaError("#", "", "the schema takes too long to convert; simplify it")
        return OSError(f"the schema converter ended with status {status}")

    def close(self) -> None:
        """Kill the child, whatever it is doing."""
        child, self._child = self._child, None
        if child is not None:
            if child.poll() is None:
                child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    try:
                        pipe.close()
                    except OSError:
                        pass  # buffered data could not be written, which no longer matters


class Processes:
    """A pool of converter processes for any thread. They are started when they are needed, and reused; only one thread
    uses a process at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: list[Process] = []
        self._idle: list[Process] = []  # the last one is used next, so that few are started

    @contextmanager
    def one(self) -> Iterator[Process]:
        """Lend a process that nobody else uses meanwhile."""
        with self._lock:
            if self._idle:
                process = self._idle.pop()
            else:
                process = Process()
                self._all.append(process)
        try:
            yield process
        finally:
            with self._lock:
                self._idle.append(process)

    def close(self) -> None:
        """Kill all processes, whatever they are doing."""
        with self._lock:
            processes = list(self._all)
        for process in processes:
            process.close()
