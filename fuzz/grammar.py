"""Compiles random grammars: from hypothesis through Python, and from libFuzzer through the compiled reader.

Invariant: any text either compiles or is refused with a reason (and a position, if there is one); any grammar that
compiles accepts or rejects any text; nothing crashes, hangs or grows without bound.

`make fuzz` runs both; LLAMAD_FUZZ_CASES and LLAMAD_FUZZ_SECONDS say how long. Inputs that libFuzzer finds interesting
stay in build/fuzz/grammar; an input that breaks something joins fuzz/corpus/grammar, with a test that tells its story.
"""

import os

from hypothesis import HealthCheck, example, given, settings
from support.grammars.texts import judge, texts, words
from support.libfuzzer import Target

TARGET = Target("grammar", "grammar")
N_CASES = int(os.environ.get("LLAMAD_FUZZ_CASES", "20000"))
N_SECONDS = int(os.environ.get("LLAMAD_FUZZ_SECONDS", "300"))


@settings(max_examples=N_CASES, deadline=None, suppress_health_check=list(HealthCheck))
@given(grammar=texts, text=words)
@example(grammar="root ::= " + "(" * 20000, text=b"")
@example(grammar='root ::= "a"{5,2}', text=b"aaaaa")
@example(grammar='root ::= e root "a" | "b"\ne ::= f\nf ::= "x"?', text=b"b")
def test_any_text_as_a_grammar(grammar, text):
    judge(grammar, text)


def test_the_corpus_holds_under_the_sanitizers():
    n_files = len(list(TARGET.corpus.iterdir()))
    assert f"replayed {n_files} files" in TARGET.replay()


def test_libfuzzer():
    TARGET.libfuzzer(N_SECONDS, 4096)
