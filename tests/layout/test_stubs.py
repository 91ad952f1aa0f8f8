"""Stubs say what compiled modules hold: mypy believes them, and nothing else compares the two."""

import ast
import importlib

import pytest
from support.imports import ROOT

STUBS = sorted(path for path in (ROOT / "llamad").rglob("*.pyi") if path.stem != "_llama")


def defined(tree: ast.Module) -> set[str]:
    """The names that a stub defines, without those that it imports or that are types only."""
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    variables = {
        node.target.id
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    return functions | variables


@pytest.mark.parametrize("stub", STUBS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_stub_names_exists(stub):
    module = importlib.import_module(".".join(stub.relative_to(ROOT).with_suffix("").parts))
    assert {name for name in defined(ast.parse(stub.read_text())) if not hasattr(module, name)} == set()


def test_the_stub_of_the_messages_has_all_numbers():
    module = importlib.import_module("llamad.protocol.messages")
    numbers = {name for name, value in vars(module).items() if isinstance(value, int)}
    assert defined(ast.parse((ROOT / "llamad/protocol/messages.pyi").read_text())) == numbers
