"""Cuts and joins broken states: by the million through the compiled code, and from libFuzzer. fuzz/pieces_target.cpp
states the invariant. It uses the corpus of fuzz/ses1.py.

`make fuzz` runs them; LLAMAD_FUZZ_CASES and LLAMAD_FUZZ_SECONDS say how long.
"""

import os

from support.libfuzzer import Target

TARGET = Target("pieces", "ses1", corpus_name="ses1")
N_CASES = int(os.environ.get("LLAMAD_FUZZ_CASES", "200000"))
N_SECONDS = int(os.environ.get("LLAMAD_FUZZ_SECONDS", "300"))
EMPTY = "llama-empty"  # the only file of the corpus without tokens


def test_mutations_under_the_sanitizers():
    """Run the corpus and its prefixes, then N_CASES mutations of its states and their pieces."""
    names = [path.name for path in TARGET.corpus.iterdir()]
    output = TARGET.replay("-n", str(N_CASES))
    print(output)
    assert f"replayed {len(names)} files, {len(names) - names.count(EMPTY)} of them whole states" in output
    assert f"tried {N_CASES} mutations" in output


def test_libfuzzer():
    TARGET.libfuzzer(N_SECONDS, 8192)
