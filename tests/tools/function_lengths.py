"""How long functions are, in Python, Cython, C and C++: what tests/layout holds to its limits."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple


class Function(NamedTuple):
    name: str
    line: int  # where its head begins
    n_lines: int  # to the end of its body


def of_python(text: str) -> Iterator[Function]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield Function(node.name, node.lineno, node.end_lineno - node.lineno + 1)


_CYTHON_HEAD = re.compile(
    r"( *)(?:async )?(?:def|cdef|cpdef) (?!class |extern |struct |enum |union )[^(=]*?(\w+)\("
)


def of_cython(text: str) -> Iterator[Function]:
    """By indentation: a body ends before the next line that is indented no more than its head."""
    lines = [line.partition("#")[0].rstrip() for line in text.splitlines()]
    for start, line in enumerate(lines):
        head = _CYTHON_HEAD.match(line)
        if head is None:
            continue
        end, depth = start, 0
        while (depth := depth + lines[end].count("(") - lines[end].count(")")) > 0:
            end += 1
        if not lines[end].endswith(":"):
            continue  # a declaration, or a body on the same line
        last = end
        for number in range(end + 1, len(lines)):
            if not lines[number]:
                continue
            if len(lines[number]) - len(lines[number].lstrip()) <= len(head[1]):
                break
            last = number
        yield Function(head[2], start + 1, last - start + 1)


_C_NO_CODE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'|^[ \t]*\#(?:\\\n|[^\n])*""",
    re.DOTALL | re.MULTILINE,
)
_C_NO_FUNCTION = re.compile(r"\s*(?:namespace|struct|class|enum|union|extern|typedef)\b[^()]*$")


def of_c(text: str) -> Iterator[Function]:
    """By braces: a block behind parentheses that stands outside of every function is a function's body."""
    code = _C_NO_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    begin = 0  # of the statement that the next brace may belong to
    depth = 0  # of braces inside a function
    name, start = "", 0
    for found in re.finditer(r"[{};]", code):
        head = code[begin : found.start()]
        sign = found[0]
        if depth:
            depth += (sign == "{") - (sign == "}")
            if not depth:
                line = code.count("\n", 0, start) + 1
                yield Function(name, line, code.count("\n", start, found.start()) + 1)
        elif sign == "{" and "(" in head and not _C_NO_FUNCTION.match(head):
            depth = 1
            name = " ".join(head.partition("(")[0].split())
            start = begin + len(head) - len(head.lstrip())
        begin = found.end()


READERS: dict[str, Callable[[str], Iterator[Function]]] = {
    **dict.fromkeys((".py", ".pyi"), of_python),
    **dict.fromkeys((".pyx", ".pxd"), of_cython),
    **dict.fromkeys((".c", ".h", ".cpp", ".hpp"), of_c),
}
