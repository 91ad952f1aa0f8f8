"""The compiled grammars and their cache.

They are looked up on the event loop. Threads of their own convert schemas and wait for the engine to compile, so that a
large grammar does not delay tokenizing. Clients take turns, large grammars wait only for large ones, and each thread
has its own converter process. Raises every 400 about a grammar or a schema.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from llamad.api.request.errors import ApiError, bad, engine_ended
from llamad.api.request.parse import GenerationRequest
from llamad.base.fair_pool import SizedPool
from llamad.base.memory_budget import Shared
from llamad.chat.conversion.process import Processes, ToolCall, ToolsError
from llamad.chat.parsing import Format
from llamad.chat.parsing.lazy_grammar import Lazy, LazyGrammar, TriggerError
from llamad.chat.schema import SchemaError, text_grammars
from llamad.client.engine_client import EngineClient
from llamad.client.grammar import EngineGrammar
from llamad.flags.settings import ModelSettings
from llamad.grammar.grammar import GrammarError
from llamad.protocol.errors import EngineEnded

KEPT_MAX = 32
KEPT_BYTES_MAX = 64 << 20
SCHEMA_BYTES_MAX = 2 << 20
GRAMMAR_CHARS_MAX = 2 << 20
TIME_MAX_US = 5_000_000
# The number of threads for small grammars, and again for large ones. The engine has as many compilers
# (llamad/engine/server.py).
N_THREADS = 2
# In bytes, or characters of GBNF; takes some tens of milliseconds, unless it is made to be slow.
SMALL_MAX = 65536


class ConstraintSource(msgspec.Struct, frozen=True):
    """What constrains a generation, and the key of the cache. It is one of these: a GBNF grammar; choices (texts as
    JSON), one of which is generated; a JSON schema (as JSON), with GBNF for the text `before` its value; tools (a
    ToolCall as JSON), one of which must or may be called. With tools that may be called and a schema, it is a call or a
    value."""

    grammar: str = ""
    choices: bytes | None = None
    schema: bytes | None = None
    strict: bool = True
    tools: bytes | None = None
    may_call: bool = False  # if false, one of the tools must be called
    before: str = ""
    lazy: Lazy | None = None  # if set, the grammar or the schema holds only after its trigger
    named: str = ""  # the field of the request, for errors; if empty: grammar, json_schema or tools

    @property
    def is_none(self) -> bool:
        return not self.grammar and self.choices is None and self.schema is None and self.tools is None

    @property
    def size(self) -> int:
        """Return about how many bytes are converted and compiled."""
        parts = (self.choices, self.schema, self.tools)
        return len(self.grammar) + len(self.before) + sum(len(part) for part in parts if part is not None)

    @property
    def n_bytes(self) -> int:
        """Return the memory that it takes."""
        return self.size + 3 * len(self.grammar)


NOTHING = ConstraintSource()


NO_MEMORY = Shared(0)


class Constraint(msgspec.Struct, frozen=True):
    """A compiled grammar, its GBNF, and warnings about the parts of a schema that it ignores."""

    grammar: EngineGrammar
    text: str
    warnings: tuple[str, ...] = ()
    memory: Shared = NO_MEMORY  # the memory that was counted for it when it was new


class Making(msgspec.Struct):
    """A constraint being compiled, and the number of requests waiting for it."""

    future: asyncio.Future[Constraint]
    n_waiting: int = 0


def schema_source(schema: Any, strict: bool) -> ConstraintSource:
    """Return the constraint for a JSON schema; equal schemas have equal keys. The order of properties matters, because
    the grammar follows it. An empty schema means any object, as in llama-server; `true` means any value."""
    data = msgspec.json.encode(schema if schema != {} else {"type": "object"})
    if len(data) > SCHEMA_BYTES_MAX:
        raise bad(f'"json_schema" may have at most {SCHEMA_BYTES_MAX} bytes as JSON, not {len(data)}')
    return ConstraintSource(schema=data, strict=strict)


def choices_source(texts: tuple[str, ...], named: str) -> ConstraintSource:
    """Return the constraint for one of several texts; `named` is the field of the request. A thread writes the grammar,
    because the texts may be long; texts that cannot fit are refused here."""
    if sum(map(len, texts)) > GRAMMAR_CHARS_MAX:
        raise _too_long(named)
    return ConstraintSource(choices=msgspec.json.encode(texts), named=named)


def tools_source(
    format: Format, tools: list[dict[str, Any]], choice: str, parallel: bool, starts_in_reasoning: bool
) -> ConstraintSource:
    """Return the constraint for a call of one of the tools ("required"), for a call of the tool that `choice` names, or
    for free text up to a call ("auto")."""
    asked = ToolCall(format, tools, choice, parallel, starts_in_reasoning)
    try:
        data = msgspec.json.encode(asked)
    except RecursionError:
        raise bad('"tools" are nested too deeply') from None
    if len(data) > SCHEMA_BYTES_MAX and choice == "auto" and not asked.has_strict:
        data = msgspec.json.encode(asked.without_schemas())
    if len(data) > SCHEMA_BYTES_MAX:
        raise bad(f'"tools" may have at most {SCHEMA_BYTES_MAX} bytes as JSON when a call is forced')
    return ConstraintSource(tools=data, may_call=choice == "auto")


def parse(options: GenerationRequest, default: ConstraintSource) -> ConstraintSource:
    """Return the constraint of the request's `grammar` or `json_schema`, which holds only after its triggers if it is
    lazy, or else the server's constraint. An empty grammar means none."""
    source = _parse(options, default)
    return source if source is default else waiting(options, source)


def waiting(options: GenerationRequest, source: ConstraintSource) -> ConstraintSource:
    """Return the request's own constraint; if it is lazy, it holds only after its triggers."""
    lazy = options.waits.lazy if options.waits is not None else None
    return source if lazy is None or source.is_none else msgspec.structs.replace(source, lazy=lazy)


def _parse(options: GenerationRequest, default: ConstraintSource) -> ConstraintSource:
    grammar, schema = options.grammar, options.json_schema
    if grammar is None and schema is None:
        return default
    options.grammar = options.json_schema = None  # they may be large, and are no longer needed
    if grammar is not None and len(grammar) > GRAMMAR_CHARS_MAX:
        raise bad(f'"grammar" may have at most {GRAMMAR_CHARS_MAX} characters, not {len(grammar)}')
    if grammar and schema is not None:
        raise bad('Either "json_schema" or "grammar" can be specified, but not both')
    return schema_source(schema, options.strict) if schema is not None else ConstraintSource(grammar or "")


def from_flags(settings: ModelSettings) -> ConstraintSource:
    """Return the constraint that the flags set for every request. Raises ValueError with a message."""
    given = {
        "--grammar": settings.grammar,
        "--grammar-file": settings.grammar_file,
        "--json-schema": settings.json_schema,
        "--json-schema-file": settings.json_schema_file,
    }
    named = [name for name, value in given.items() if value is not None]
    if not named:
        return NOTHING
    if len(named) > 1:
        raise ValueError(f"{' and '.join(named)} cannot be combined: give one of them")
    text = given[named[0]] or ""
    if named[0].endswith("-file"):
        try:
            text = Path(text).read_bytes().decode("utf-8-sig")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "the file is not UTF-8"
            raise ValueError(f"{named[0]} {text}: {reason}") from None
    if named[0].startswith("--grammar"):
        return ConstraintSource(text)
    try:
        schema = msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{named[0]} is not valid JSON: {error}") from None
    if not isinstance(schema, dict | bool):
        raise ValueError(f"{named[0]} must be an object, true or false")
    try:
        return schema_source(schema, True)
    except ApiError as error:
        raise ValueError(f"{named[0]}: {error.message}") from None


class Grammars:
    def __init__(self) -> None:
        self._own: dict[ConstraintSource, Constraint] = {}  # the server's own; never evicted
        self.own_text = ""  # the GBNF of the server's own constraint; known once an engine has compiled it
        self._kept: OrderedDict[ConstraintSource, Constraint] = OrderedDict()
        # The client is part of the key, because a client with many waiting grammars must not delay another client that
        # needs one of them.
        self._making: dict[tuple[int, ConstraintSource], Making] = {}
        self._converters = Processes()
        self._threads = SizedPool(N_THREADS, SMALL_MAX, "llamad-grammar")

    def known(self, source: ConstraintSource) -> Constraint | None:
        """Return the constraint if it is compiled already, else None."""
        if source in self._own:
            return self._own[source]
        constraint = self._kept.get(source)
        if constraint is not None:
            self._kept.move_to_end(source)
        return constraint

    async def find(self, client: int, source: ConstraintSource, engine: EngineClient) -> Constraint:
        """Return the constraint, compiled now if needed. Requests of one client for the same constraint share its
        compilation, which is cancelled once no request waits for it. Raises ApiError if it cannot be used."""
        constraint = self.known(source)
        if constraint is not None:
            return constraint
        making = self._making.get((client, source))
        if making is None:
            making = self._making[client, source] = self._begin(client, source, engine)
        making.n_waiting += 1
        try:
            return await asyncio.shield(making.future)
        finally:
            making.n_waiting -= 1
            if not making.n_waiting and not making.future.done():
                making.future.cancel()
                # Remove it immediately, because the next request must not wait for a cancelled one.
                if self._making.get((client, source)) is making:
                    del self._making[client, source]

    def _begin(self, client: int, source: ConstraintSource, engine: EngineClient) -> Making:
        loop = asyncio.get_running_loop()
        work = partial(self._kept_or_compiled, source, engine, loop)
        future = asyncio.ensure_future(self._threads.run(client, source.size, work))
        making = Making(future)

        def done(made: asyncio.Future[Constraint]) -> None:
            if made.cancelled():
                return
            # If it is not, the engine that it was for has ended.
            if self._making.get((client, source)) is making:
                del self._making[client, source]
                if made.exception() is None:
                    self._keep(source, made.result())
            else:
                made.exception()

        future.add_done_callback(done)
        return making

    async def prepare(self, source: ConstraintSource, engine: EngineClient) -> None:
        """Compile the server's own constraint for an engine that has just been started."""
        if not source.is_none:
            loop = asyncio.get_running_loop()
            made = await loop.run_in_executor(None, self.compile, source, engine, loop)
            # Its memory is not counted, because it belongs to no request.
            self._own[source] = msgspec.structs.replace(made, memory=NO_MEMORY)
            self.own_text = made.text

    def forget(self) -> None:
        """Drop all constraints, because the engine that compiled them has ended."""
        self._own.clear()
        self._kept.clear()
        self._making.clear()

    def _kept_or_compiled(
        self, source: ConstraintSource, engine: EngineClient, loop: asyncio.AbstractEventLoop
    ) -> Constraint:
        """Return the constraint; another client may have had it compiled in the meantime. Runs on one of the
        threads."""
        return self._kept.get(source) or self.compile(source, engine, loop)

    def compile(
        self, source: ConstraintSource, engine: EngineClient, loop: asyncio.AbstractEventLoop
    ) -> Constraint:
        """Compile a constraint: its text is made here, its automaton in the engine. Runs on one of the threads, or at
        start-up."""
        text, warnings = source.grammar, list[str]()
        if source.choices is not None:
            text = self._of_choices(source.choices, source.named)
        if source.schema is not None and source.tools is None:
            text, warnings = self._convert(source.schema, source.strict, source.named)
            text = _behind(source.before, text)
        try:
            if source.tools is not None:
                text, warnings = self._tool_grammar(source, source.tools)
            whole = text
            if source.lazy is not None:
                # This checks the client's own text, so that errors are about it.
                self._compiled(source, text, engine, loop)
                whole = self._lazy_grammar(text, source.lazy)
            grammar = self._compiled(source, whole, engine, loop)
        except ApiError as error:
            plain = None if error.status != 400 else _without_schemas(source)
            if plain is None:
                raise
            return self.compile(plain, engine, loop)
        n_bytes = grammar.n_bytes + len(text) + len(source.grammar)
        n_bytes += len(source.choices or b"") + len(source.schema or b"") + len(source.tools or b"")
        return Constraint(grammar, text, tuple(warnings), Shared(n_bytes))

    def _compiled(
        self, source: ConstraintSource, text: str, engine: EngineClient, loop: asyncio.AbstractEventLoop
    ) -> EngineGrammar:
        try:
            return asyncio.run_coroutine_threadsafe(engine.compile(text, TIME_MAX_US), loop).result()
        except GrammarError as error:
            raise _refused(source, error) from None
        except EngineEnded:
            raise engine_ended() from None

    def _of_choices(self, choices: bytes, named: str) -> str:
        text = text_grammars.of_texts(msgspec.json.decode(choices), GRAMMAR_CHARS_MAX)
        if text is None:
            raise _too_long(named)
        return text

    def _convert(self, schema: bytes, strict: bool, named: str) -> tuple[str, list[str]]:
        try:
            with self._converters.one() as converter:
                return converter.convert(schema, strict=strict)
        except SchemaError as error:
            raise bad(f'"{named or "json_schema"}": {error}') from None

    def _tool_grammar(self, source: ConstraintSource, tools: bytes) -> tuple[str, list[str]]:
        try:
            with self._converters.one() as converter:
                if source.schema is None:
                    return converter.tool_grammar(tools), []
                return converter.answer_grammar(tools, source.schema, strict=source.strict)
        except ToolsError as error:
            raise bad(f'"tools": {error}') from None
        except SchemaError as error:
            raise bad(f'"{source.named or "json_schema"}": {error}') from None

    def _lazy_grammar(self, text: str, lazy: Lazy) -> str:
        try:
            with self._converters.one() as converter:
                return converter.lazy_grammar(msgspec.json.encode(LazyGrammar(text, lazy)))
        except TriggerError as error:
            raise bad(f'"grammar_triggers": {error}') from None

    def _keep(self, source: ConstraintSource, made: Constraint) -> None:
        self._kept[source] = made
        self._kept.move_to_end(source)
        n_bytes = sum(one.memory.n_bytes for one in self._kept.values())
        while len(self._kept) > KEPT_MAX or (n_bytes > KEPT_BYTES_MAX and len(self._kept) > 1):
            _, gone = self._kept.popitem(last=False)
            n_bytes -= gone.memory.n_bytes

    def close(self) -> None:
        self._threads.close()
        self._converters.close()


def _too_long(named: str) -> ApiError:
    return bad(f'"{named}" may make a grammar of at most {GRAMMAR_CHARS_MAX} characters')


def _behind(before: str, text: str) -> str:
    """Return the grammar of a schema with `before` in front of its value. No rule of the grammar refers to its root."""
    if not before:
        return text
    rules = dict(line.split(" ::= ", 1) for line in text.rstrip("\n").split("\n"))
    name = "value"
    while name in rules:
        name += "-"
    rules = {
        "root": f"({before}) {name}",
        name: rules["root"],
        **{k: v for k, v in rules.items() if k != "root"},
    }
    return "".join(f"{name} ::= {body}\n" for name, body in rules.items())


def _without_schemas(source: ConstraintSource) -> ConstraintSource | None:
    """Return the same tools, which may be called with any arguments, for schemas that take too much memory or time.
    None means that there was nothing to leave out."""
    if source.tools is None or not source.may_call:
        return None
    asked = msgspec.json.decode(source.tools, type=ToolCall)
    plain = msgspec.json.encode(asked.without_schemas())
    return None if asked.has_strict or plain == source.tools else msgspec.structs.replace(source, tools=plain)


def _refused(source: ConstraintSource, error: GrammarError) -> ApiError:
    if source.schema is not None:
        return bad(f'"{source.named or "json_schema"}": its grammar is rejected: {error.reason}')
    if source.tools is not None:
        return bad(f'"tools": the grammar of their schemas is rejected: {error.reason}')
    where = f"line {error.line}, column {error.column}: " if error.line else ""
    return bad(f'Failed to parse grammar ("{source.named or "grammar"}"): {where}{error.reason}')
