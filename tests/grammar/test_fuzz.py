"""A short run of what `make fuzz` does for long: any text as a grammar, and the corpus of the compiled reader."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from support.grammars.texts import judge, texts, words

CORPUS = sorted((Path(__file__).parents[2] / "fuzz" / "corpus" / "grammar").iterdir())


@settings(max_examples=500, suppress_health_check=list(HealthCheck))
@given(grammar=texts, text=words)
def test_any_text_as_a_grammar(grammar, text):
    judge(grammar, text)


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_the_corpus(path):
    grammar, _, text = path.read_bytes().partition(b"\xff")
    judge(grammar.decode("utf-8", "replace"), text)
    for n in range(0, len(grammar), 7):
        judge(grammar[:n].decode("utf-8", "replace"), text)
