"""Tokenizes unusual texts with llamad and with llama.cpp.

Invariant: whatever the bytes and the vocabulary, llamad's tokens are those of llama.cpp for the whole text, with and
without special tokens added or parsed; texts that llama.cpp refuses are refused by llamad, too; nothing crashes.

`make fuzz` runs it; LLAMAD_FUZZ_CASES says how many texts each vocabulary gets. A text that breaks something joins
tests/tokenizer/test_special_tokens.py, with its story.
"""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.live_daemon import model_path
from support.models.special_vocabs import CONTROL, PLAIN, TEXTS, VOCABS, OpenVocab, write_special_vocab

N_CASES = int(os.environ.get("LLAMAD_FUZZ_CASES", "20000"))
REAL = "a real model's"
PIECES = [
    piece.encode() for piece in (*CONTROL, *PLAIN, *TEXTS, "<|im_start|>", "<|im_end|>", "<repo_name>", " ")
]
PIECES += [
    b"\xff",
    b"\xc3",
    b"\xe6\x97",
    b"\xed\xa0\x80",
    b"\xf0\x9f\xa6\x99",
    b"\0",
    b"\r\n",
    b"\t",
    b"Hello",
    b" world",
]
RUNS = st.tuples(st.sampled_from(PIECES), st.integers(1, 80)).map(lambda run: run[0] * run[1])
MIXES = st.lists(st.one_of(st.sampled_from(PIECES), RUNS, st.binary(max_size=8)), max_size=120).map(b"".join)
# Texts beyond the size up to which a text is tokenized at once.
LONG = st.tuples(MIXES, st.integers(1, 40)).map(lambda mix: (mix[0] * mix[1])[:200_000])


@pytest.mark.parametrize("api_only", [False, True])
@pytest.mark.parametrize("name", [*VOCABS, REAL])
def test_any_text_has_llama_cpps_tokens(name, api_only, tmp_path):
    path = model_path() if name == REAL else write_special_vocab(tmp_path / "vocab.gguf", **VOCABS[name])
    opened = OpenVocab(path, api_only=api_only)

    @settings(max_examples=max(1, N_CASES // 16), deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.one_of(MIXES, MIXES, MIXES, LONG))
    def run(text):
        opened.check(text)

    run()
    opened.close()
