"""Restores broken states: by the million through the compiled checker, from libFuzzer, and through a live server.

Invariant: every blob gets a response (restored, or refused with a 400 and a reason), the server stays alive, and the
next token of every other slot is unchanged.

`make fuzz` runs them all; LLAMAD_FUZZ_CASES and LLAMAD_FUZZ_SECONDS say how long. LLAMAD_FUZZ_DIRECT=1 skips HTTP and
uses the slots directly. The corpus has small real states (tests/support/states/ses1_corpus.py writes it); inputs that
libFuzzer finds interesting stay in build/fuzz/ses1, and an input that breaks something joins fuzz/corpus/ses1, with a
test that tells its story.

To run the live server under AddressSanitizer: LLAMAD_FUZZ_CASES=1000 make asan ARGS="fuzz/ses1.py -k live"
"""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.libfuzzer import Target
from support.models.tiny_kv_models import WINDOW, write_model
from support.states.ses1_corpus import unpack
from support.states.state_mutations import Served, Straight, mutations

TARGET = Target("ses1", "ses1")
N_CHECKED = int(os.environ.get("LLAMAD_FUZZ_CASES", "1000000"))
N_SERVED = int(os.environ.get("LLAMAD_FUZZ_CASES", "10000"))
N_SECONDS = int(os.environ.get("LLAMAD_FUZZ_SECONDS", "300"))
IS_DIRECT = os.environ.get("LLAMAD_FUZZ_DIRECT") == "1"
LOOK_EVERY = 100

# Servers in which a wrong state does the most harm: all slots in one cache without flash attention, a window, two
# memories, and M-RoPE.
SERVERS = {
    "shared": (
        "llama",
        ("-np", "2", "-c", "512", "--kv-unified", "-fa", "off", "-ctk", "f32", "-ctv", "f32"),
    ),
    "window": ("gemma3", ("-np", "2", "-c", "512")),
    "hybrid": ("jamba", ("-np", "2", "-c", "512")),
    "m-rope": ("qwen2vl", ("-np", "2", "-c", "512", "-ctk", "q8_0", "-fa", "on")),
}
TOKENS = [1, *(3 + byte for byte in b"what slot 0 holds, and what must not change")]


def test_mutations_through_the_checker_under_the_sanitizers():
    """Check the corpus and its prefixes, then N_CHECKED mutations of it, which are the same in every run."""
    n_files = len(list(TARGET.corpus.iterdir()))
    output = TARGET.replay("-n", str(N_CHECKED))
    print(output)
    assert f"replayed {n_files} files, {n_files} of them whole states" in output
    assert f"checked {N_CHECKED} mutations" in output


def test_libfuzzer():
    TARGET.libfuzzer(N_SECONDS, 8192)


@pytest.mark.parametrize("name", SERVERS)
def test_mutations_through_a_live_server(name, tmp_path):
    kind, flags = SERVERS[name]
    model = write_model(tmp_path / "tiny.gguf", kind)
    others = [unpack(path.read_bytes())[2] for path in sorted(TARGET.corpus.iterdir())]
    assert len(TOKENS) > WINDOW
    n_cases = max(1, N_SERVED // len(SERVERS))
    counts: dict[int, int] = {}
    with (Straight if IS_DIRECT else Served)(model, *flags) as server:
        server.next(0, TOKENS)
        server.next(1, [*TOKENS, 70, 80])
        real = server.save(1)
        assert server.restore(1, real) == 200
        before = server.next(0, TOKENS)

        @settings(max_examples=n_cases, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(changes=mutations([real, *others]), is_fresh=st.booleans())
        def run(changes, is_fresh):
            blob = bytearray(real)
            for change in changes:
                blob = change(blob)
            status = server.restore(1, bytes(blob))
            counts[status] = counts.get(status, 0) + 1
            assert status in (200, 400, 413)
            if sum(counts.values()) % LOOK_EVERY == 0:
                # The other slot is checked beside the restored one, and while that one is in use.
                assert server.next(0, TOKENS) == before
                server.next(1, [*TOKENS, 70, 80, 90] if is_fresh else TOKENS)

        run()
        assert server.next(0, TOKENS) == before
        assert server.restore(1, real) == 200
    print(name, counts)
    assert counts.get(400, 0) > 0
