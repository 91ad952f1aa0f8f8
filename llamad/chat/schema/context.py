"""What every part of one conversion works with, in one place.

One conversion, one thread. It holds, and does nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .check import Checker
from .errors import Report
from .expressions import Expr
from .goals import Flattener, Goal
from .rules import Rules
from .strings import Strings


@dataclass(frozen=True)
class Context:
    rules: Rules
    report: Report
    flattener: Flattener
    strings: Strings
    checker: Checker
    ask: Callable[[Goal, str], Expr]  # the expression for a goal; its rule may be written later
