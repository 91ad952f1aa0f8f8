"""The rules of a grammar while it is built: their names, their limits, and the clean-up before they become text.

Each conversion has one `Rules` and runs on one thread. Knows grammars, not schemas.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable

from llamad.chat.schema.errors import SchemaError
from llamad.chat.schema.expressions import (
    NEVER,
    Chars,
    Choice,
    Expr,
    Literal,
    Reference,
    Repeat,
    Sequence,
    alt,
    references,
    render,
    rep,
    seq,
    weight,
)

MOST_RULES = 20_000
MOST_TEXT = 4_000_000
SHORT = 24  # literals up to this length are inlined
BUILT_IN = ("root", "space", "value", "object", "array", "string", "char", "number", "integer", "boolean")
NAME = 40  # characters of a rule's name that come from the schema


class Rules:
    def __init__(self) -> None:
        self._bodies: dict[str, Expr] = {}
        self._shared: dict[Expr, Reference] = {}
        self._taken = dict.fromkeys(BUILT_IN, 1)
        self._made: set[str] = set()
        self._weight = 0

    def reserve(self, hint: str) -> str:
        """Return a name for a rule that is defined later."""
        if len(self._taken) >= MOST_RULES:
            raise SchemaError("#", "", f"the schema needs more than {MOST_RULES} grammar rules; simplify it")
        base = re.sub("[^a-zA-Z0-9]+", "-", hint)[:NAME].strip("-") or "rule"
        name = base
        while name in self._taken:
            self._taken[base] += 1
            name = f"{base}-{self._taken[base]}"
        self._taken[name] = 1
        return name

    def define(self, name: str, body: Expr) -> None:
        self._weight += weight(body)
        if self._weight > MOST_TEXT:
            raise too_long()
        self._bodies[name] = body

    def add(self, hint: str, body: Expr) -> Reference:
        name = self.reserve(hint)
        self.define(name, body)
        return Reference(name)

    def shared(self, hint: str, body: Expr) -> Expr:
        """Return the body itself if it is small, else a reference to the rule that has it."""
        if _small(body):
            return body
        if body not in self._shared:
            self._shared[body] = self.add(hint, body)
        return self._shared[body]

    def once(self, name: str, make: Callable[[], Expr]) -> Reference:
        """Return the built-in rule of this name, which is made on first use; it may refer to itself."""
        if name not in self._made:
            self._made.add(name)
            self.define(name, make())
        return Reference(name)

    def rendered(self, root: str, prefix: str = "") -> dict[str, str] | None:
        """Return the rules as text, by name, or None if no finite text can be derived from the root.

        With a prefix, the root has that name, and all names but built-in ones begin with it.
        """
        bodies = _pruned(self._bodies)
        if bodies[root] == NEVER:
            return None
        bodies = _without_aliases(bodies)
        renamed = _Renamed(root, prefix)
        texts: dict[str, str] = {}
        length = 0
        seen = {root}
        queue = deque([root])
        while queue:
            name = queue.popleft()
            body = bodies[name]
            texts[renamed.name(name)] = render(renamed.expr(body) if prefix else body)
            length += len(name) + len(texts[renamed.name(name)])
            if length > MOST_TEXT:
                raise too_long()
            for other in references(body):
                if other not in seen:
                    seen.add(other)
                    queue.append(other)
        return texts


class _Renamed:
    def __init__(self, root: str, prefix: str) -> None:
        self._root = root
        self._prefix = prefix

    def name(self, name: str) -> str:
        if not self._prefix:
            return name
        if name == self._root:
            return self._prefix
        return name if name in BUILT_IN else f"{self._prefix}-{name}"

    def expr(self, expr: Expr) -> Expr:
        match expr:
            case Reference(name):
                return Reference(self.name(name))
            case Sequence(parts):
                return Sequence(tuple(map(self.expr, parts)))
            case Choice(options):
                return Choice(tuple(map(self.expr, options)))
            case Repeat(body, least, most):
                return Repeat(self.expr(body), least, most)
        return expr


def too_long() -> SchemaError:
    return SchemaError("#", "", f"the schema's grammar is longer than {MOST_TEXT:,} characters; simplify it")


def _small(body: Expr) -> bool:
    match body:
        case Literal(text):
            return len(text) <= SHORT
        case Chars(ranges):
            return len(ranges) <= 8
        case Reference():
            return True
        case Sequence(parts) | Choice(options=parts):
            return not parts
    return False


def _pruned(bodies: dict[str, Expr]) -> dict[str, Expr]:
    """Return the rules without expressions that can never be completed: those that match nothing, and endless
    recursion."""
    users: dict[str, list[str]] = {}
    for name, body in bodies.items():
        for used in set(references(body)):
            users.setdefault(used, []).append(name)
    productive: set[str] = set()
    queue = deque(reversed(bodies))
    while queue:
        name = queue.popleft()
        if name not in productive and _completes(bodies[name], productive):
            productive.add(name)
            queue.extend(user for user in users.get(name, ()) if user not in productive)
    return {name: _prune(body, productive) for name, body in bodies.items()}


def _completes(expr: Expr, productive: set[str]) -> bool:
    match expr:
        case Reference(name):
            return name in productive
        case Sequence(parts):
            return all(_completes(part, productive) for part in parts)
        case Choice(options):
            return any(_completes(option, productive) for option in options)
        case Repeat(body, least):
            return least == 0 or _completes(body, productive)
    return True


def _prune(expr: Expr, productive: set[str]) -> Expr:
    match expr:
        case Reference(name):
            return expr if name in productive else NEVER
        case Sequence(parts):
            return seq(*(_prune(part, productive) for part in parts))
        case Choice(options):
            return alt(_prune(option, productive) for option in options)
        case Repeat(body, least, most):
            return rep(_prune(body, productive), least, most)
    return expr


def _without_aliases(bodies: dict[str, Expr]) -> dict[str, Expr]:
    """Inline rules that are short or only refer to another rule."""
    meaning: dict[str, Expr] = {}
    for start in bodies:
        path: dict[str, None] = {}
        name = start
        while name not in meaning:
            path[name] = None
            body = bodies[name]
            if isinstance(body, Reference) and body.name not in path:
                name = body.name
                continue
            meaning[name] = body if _small(body) else Reference(name)
        for passed in path:
            meaning[passed] = meaning[name]

    def resolve(expr: Expr) -> Expr:
        match expr:
            case Reference(name):
                return meaning[name]
            case Sequence(parts):
                return seq(*map(resolve, parts))
            case Choice(options):
                return alt(map(resolve, options))
            case Repeat(body, least, most):
                return rep(resolve(body), least, most)
        return expr

    return {name: resolve(body) for name, body in bodies.items()}
