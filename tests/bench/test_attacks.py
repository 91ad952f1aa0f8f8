"""The attacks of `python -m bench attacks`, as far as they need no server."""

import argparse

import pytest

from bench.attacks import command as attacks


def flags(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    attacks.add_flags(parser)
    return parser.parse_args(["--model", "x.gguf", *words])


def test_attacks_are_chosen_by_name() -> None:
    name = "special tokens, 4 MB, /tokenize"
    assert flags("--only", name, "--only", "noise").only == [name, "noise"]
    assert flags().only is None
    with pytest.raises(SystemExit):
        flags("--only", "no such attack")
