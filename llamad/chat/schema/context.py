"""The objects that all parts of one conversion share.

Each conversion runs on one thread. This only holds the objects.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from llamad.chat.schema.check import Checker
from llamad.chat.schema.errors import Report
from llamad.chat.schema.expressions import Expr
from llamad.chat.schema.goals import Flattener, Goal
from llamad.chat.schema.rules import Rules
from llamad.chat.schema.strings import Strings


class Context(msgspec.Struct, frozen=True):
    rules: Rules
    report: Report
    flattener: Flattener
    strings: Strings
    checker: Checker
    ask: Callable[[Goal, str], Expr]  # the expression for a goal; its rule may be written later
