"""What the package imports at run time is Python's own, its own, or a dependency that pyproject.toml names.

A package that only comes with another one may be missing after that one's next release.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator

from support.imports import ROOT, modules

# Packages whose modules have another name than they have.
MODULES = {"pillow": "PIL"}
# Modules that belong to the interface of a dependency, and always come with it.
PROVIDED = {"markupsafe": "jinja2"}


def declared() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {re.split(r"[^\w-]", line)[0] for line in project["dependencies"]}
    return {MODULES.get(name, name) for name in names} | {
        name for name, owner in PROVIDED.items() if owner in names
    }


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imported(node: ast.AST) -> Iterator[str]:
    """Yield the packages that the code imports when it runs."""
    if isinstance(node, ast.Import):
        yield from (alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield node.module.partition(".")[0]
    for child in ast.iter_child_nodes(node):
        if not is_for_types(child):
            yield from imported(child)


def test_every_import_is_declared():
    allowed = {"llamad", *sys.stdlib_module_names, *declared()}
    undeclared = {
        f"{module} imports {name}"
        for module, paths in modules().items()
        for path in paths
        if path.suffix == ".py"
        for name in imported(ast.parse(path.read_text(encoding="utf-8")))
        if name not in allowed
    }
    assert not undeclared, "\n".join(sorted(undeclared))


def test_the_reader_sees_imports_in_functions_and_skips_those_for_types():
    code = "import a.b\nif TYPE_CHECKING:\n    import c\ndef f():\n    from d.e import g\n"
    assert list(imported(ast.parse(code))) == ["a", "d"]
