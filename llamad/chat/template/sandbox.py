"""The environment in which chat templates run: Jinja2's immutable sandbox with Hugging Face's additions and a budget.

A template may be hostile, and a worker thread cannot be stopped from outside, so the compiled code counts its work:
- every loop iteration, call, attribute and filter is a step; the clock is read every 64 steps;
- before an operation grows a string, list or number, its result's size is computed and charged
  (`*`, `+`, `**`, `%`, `~`, set blocks, macros, methods such as center or replace, format strings, filters);
- before an operation walks a whole value (output, comparison, hashing), the value is measured.
Between two checks of the clock, only values of bounded size are processed. Any thread.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any

from jinja2 import Environment, TemplateSyntaxError, nodes, pass_context, pass_eval_context
from jinja2 import TemplateError as JinjaError
from jinja2.compiler import CodeGenerator, Frame, operators
from jinja2.environment import Template
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import ChainableUndefined, Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEscapeFormatter, SandboxedFormatter
from jinja2.utils import Namespace
from markupsafe import Markup

from llamad.chat.template import result_size
from llamad.chat.template.budget import current
from llamad.chat.template.errors import TemplateError
from llamad.chat.template.filters import guarded_filters, guarded_tests

SOURCE_MAX = 1 << 20  # characters; the largest known template has 20,000
FORMAT_MAX = 256  # characters of the format of strftime_now
PLAIN = (str, bytes, int, float, list, tuple, dict)
DICT_ATTRIBUTES = frozenset(dir(dict))
FLAT = frozenset([str, bool, float, type(None)])


class Raised(JinjaError):
    """The template called raise_exception, with this message."""


class Counting(CodeGenerator):
    """Adds counting to compiled code that does not call the environment: loops, `~`, comparisons, slices, literals."""

    def visit_For(self, node: nodes.For, frame: Frame) -> None:
        node.body.insert(0, nodes.ExprStmt(nodes.EnvironmentAttribute("tick"), lineno=node.lineno))
        if node.test is not None:  # a loop whose filter rejects everything never reaches its body
            node.test = nodes.And(nodes.EnvironmentAttribute("tick"), node.test, lineno=node.lineno)
        super().visit_For(node, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        if frame.eval_ctx.volatile:
            self.write("(markup_join if context.eval_ctx.volatile else str_join)")
        else:
            self.write("markup_join" if frame.eval_ctx.autoescape else "str_join")
        self.write("(environment.measured((")
        for one in node.nodes:
            self.visit(one, frame)
            self.write(", ")
        self.write(")))")

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:
        sides = [node.expr, *(one.expr for one in node.ops)]
        if sum(not isinstance(one, nodes.Const) for one in sides) < 2:
            super().visit_Compare(node, frame)
            return
        self.write("(")
        self._weighed(node.expr, frame)
        for one in node.ops:
            self.write(f" {operators[one.op]} ")
            self._weighed(one.expr, frame)
        self.write(")")

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        if not isinstance(node.arg, nodes.Slice):
            super().visit_Getitem(node, frame)
            return
        self.write("environment.made(")
        super().visit_Getitem(node, frame)
        self.write(")")

    def visit_List(self, node: nodes.List, frame: Frame) -> None:
        self.write("environment.own(")
        super().visit_List(node, frame)
        self.write(")")

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:
        if node.ctx != "load":  # a target, not a value
            super().visit_Tuple(node, frame)
            return
        self.write("environment.made(")
        super().visit_Tuple(node, frame)
        self.write(")")

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        self.write("environment.made({")
        for pair in node.items:
            self._weighed(pair.key, frame)
            self.write(": ")
            self.visit(pair.value, frame)
            self.write(", ")
        self.write("})")

    def _weighed(self, node: nodes.Expr, frame: Frame) -> None:
        if isinstance(node, nodes.Const):
            self.visit(node, frame)
            return
        self.write("environment.weighed(")
        self.visit(node, frame)
        self.write(")")


class OwnList(list[Any]):
    """A list that the template wrote, which it may change. Lists in the messages, which others may use, it may not."""


class Absent(ChainableUndefined):
    """What is not defined: as in llama.cpp's templates, an empty text beside a text, and so are its attributes."""

    def __add__(self, other: Any) -> Any:
        return other if isinstance(other, str) else self._fail_with_undefined_error()

    __radd__ = __add__


class Generation(Extension):
    """`{% generation %}` marks the model's text for training; here its body is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012 - Jinja declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_written"), [], [], body).set_lineno(lineno)

    @pass_eval_context
    def _written(self, context: nodes.EvalContext, caller: Macro) -> str:
        text: str = caller()
        return text


class _Bounded:
    """A mixin for the sandbox's formatters that checks the size of a field first."""

    def format_field(self, value: Any, format_spec: str) -> str:
        budget = current()
        budget.tick()
        result_size.spec(budget, format_spec)
        budget.weigh(value)
        text: str = super().format_field(value, format_spec)  # type: ignore[misc]
        self.total = getattr(self, "total", 0) + len(text)
        budget.fit(self.total)
        return text

    def convert_field(self, value: Any, conversion: Any) -> Any:
        current().weigh(value)
        return super().convert_field(value, conversion)  # type: ignore[misc]


class BoundedFormatter(_Bounded, SandboxedFormatter):
    pass


class BoundedEscapeFormatter(_Bounded, SandboxedEscapeFormatter):
    pass


class Sandbox(ImmutableSandboxedEnvironment):
    code_generator_class = Counting
    intercepted_binops = frozenset(["+", "-", "*", "/", "//", "**", "%"])

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[Generation, loopcontrols],
            optimized=False,  # so that constant expressions are evaluated during rendering, within its budget
            finalize=_finalize,
            cache_size=0,
            undefined=Absent,
        )
        self.filters = guarded_filters()
        self.tests.update(guarded_tests())
        del self.globals["lipsum"]
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now
        self.globals["dict"] = _Dict()
        self.globals["namespace"] = PlainNamespace

    @property
    def tick(self) -> bool:
        """Count one iteration of a loop. It is a property, because that is the shortest code to call."""
        current().tick()
        return True

    def concat(self, pieces: Iterable[str]) -> str:
        """Join the output of a macro or a set block."""
        pieces = list(pieces)
        budget = current()
        budget.fit(sum(map(len, pieces)))
        text = "".join(pieces)
        budget.charge(text)
        return text

    def measured(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        budget = current()
        n = sum(map(budget.weigh, values))
        budget.fit(n)
        budget.left -= n
        return values

    def made(self, value: Any) -> Any:
        current().charge(value)
        return value

    def own(self, value: list[Any]) -> OwnList:
        current().charge(value)
        return OwnList(value)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        is_own = type(obj) is OwnList and attr in ("append", "pop")
        return is_own or super().is_safe_attribute(obj, attr, value)

    def weighed(self, value: Any) -> Any:
        if type(value) not in FLAT:
            current().weigh(value)
        return value

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        budget = current()
        result_size.before_binop(budget, operator, left, right)
        if operator == "+" and (left is None or right is None):
            left, right = _beside_text(left, right), _beside_text(right, left)
        result = self.binop_table[operator](left, right)
        budget.charge(result)
        return result

    def getitem(self, obj: Any, argument: Any) -> Any:
        budget = current()
        budget.tick()
        if type(argument) is str and type(obj) is dict and argument in obj:
            return obj[argument]
        if isinstance(argument, tuple):
            budget.weigh(argument)
        return super().getitem(obj, argument)

    def getattr(self, obj: Any, attribute: str) -> Any:
        current().tick()
        if type(obj) is dict and attribute in obj and attribute not in DICT_ATTRIBUTES:
            return obj[attribute]  # fast path, without raising and catching AttributeError
        return super().getattr(obj, attribute)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        if super().wrap_str_format(value) is None:
            return None
        owner: str = value.__self__
        is_map = value.__name__ == "format_map"

        def bounded(*args: Any, **named: Any) -> str:
            formatter: SandboxedFormatter
            if isinstance(owner, Markup):
                formatter = BoundedEscapeFormatter(self, escape=owner.escape)
            else:
                formatter = BoundedFormatter(self)
            if is_map and (named or len(args) != 1):
                raise TypeError("format_map() takes exactly one argument")
            text = formatter.vformat(owner, () if is_map else args, args[0] if is_map else named)
            return type(owner)(text)

        return functools.update_wrapper(bounded, value)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        budget = current()
        budget.tick()
        if isinstance(__obj, (types.BuiltinMethodType, types.MethodType)):
            owner = __obj.__self__
            if isinstance(owner, PLAIN):
                if __obj.__name__ == "join" and args and isinstance(args[0], Iterator):
                    args = (budget.gather(args[0]), *args[1:])
                result_size.before_method(budget, owner, __obj.__name__, args, kwargs)
            elif isinstance(owner, LoopContext):
                budget.weigh(args)  # loop.changed compares
        result = super().call(__context, __obj, *args, **kwargs)
        if not isinstance(__obj, Macro):
            budget.charge(result)
        return result


def _beside_text(value: Any, other: Any) -> Any:
    """Return a value that is added to another one: None is an empty text beside a text."""
    return "" if value is None and isinstance(other, str) else value


class _Dict:
    """Replaces the class `dict`, because a class has methods that escape the sandbox."""

    def __call__(self, *args: Any, **named: Any) -> dict[Any, Any]:
        current().weigh(args)
        return dict(*args, **named)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        current().weigh(args)
        return dict.fromkeys(*args)


class PlainNamespace(Namespace):
    """A namespace without names that begin with an underscore, which belong to the interpreter."""

    def __init__(*args: Any, **named: Any) -> None:  # a field may be named self
        self, args = args[0], args[1:]
        attributes = dict(*args, **named)
        for name in attributes:
            _refuse_hidden(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_hidden(name)
        super().__setitem__(name, value)


def _refuse_hidden(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace takes no name that begins with an underscore: {name!r}")


@pass_context
def _finalize(context: Context, value: Any) -> Any:
    if type(value) not in FLAT:
        current().weigh(value)
    return value


def _raise_exception(message: object) -> None:
    current().weigh(message)
    raise Raised(str(message))


def _strftime_now(format: str) -> str:
    if len(format) > FORMAT_MAX:
        raise TypeError(f"strftime_now takes a format of at most {FORMAT_MAX} characters")
    return (current().now or datetime.now()).strftime(format)


ENVIRONMENT: Environment = Sandbox()


@functools.lru_cache(maxsize=256)
def compiled(source: str) -> Template:
    if len(source) > SOURCE_MAX:
        raise TemplateError(
            f"the template has {len(source):,} characters; at most {SOURCE_MAX:,} are allowed"
        )
    try:
        return ENVIRONMENT.from_string(source)
    except TemplateSyntaxError as e:
        raise TemplateError(f"template syntax error, line {e.lineno}: {e.message}") from None
    except (RecursionError, MemoryError):
        raise TemplateError("template syntax error: nested too deeply") from None
    except (SyntaxError, ValueError, OverflowError, AssertionError) as e:  # Python rejects the generated code
        raise TemplateError(f"template syntax error: {e.msg if isinstance(e, SyntaxError) else e}") from None
