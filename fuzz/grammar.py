"""Grammars that nobody meant: by hypothesis through Python, and by libFuzzer through the compiled reader.

Invariant: any text either compiles or is refused with a reason (and a place, where there is one); any grammar that
compiles answers for any text; nothing crashes, hangs or grows without bound.

`make fuzz` runs both; LLAMAD_FUZZ_CASES and LLAMAD_FUZZ_SECONDS say how long. What libFuzzer finds to be interesting
stays in build/fuzz/grammar; an input that breaks something joins fuzz/corpus/grammar, with a test that tells its story.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from support.grammars import judge, texts, words

ROOT = Path(__file__).parents[1]
CORPUS = ROOT / "fuzz" / "corpus" / "grammar"
BUILT = ROOT / "build" / "fuzz"
SOURCES = [
    ROOT / "fuzz" / "grammar_target.cpp",
    *sorted((ROOT / "ext" / "llamad" / "engine" / "grammar").glob("*.cpp")),
]
N_CASES = int(os.environ.get("LLAMAD_FUZZ_CASES", "20000"))
N_SECONDS = int(os.environ.get("LLAMAD_FUZZ_SECONDS", "300"))


@settings(max_examples=N_CASES, deadline=None, suppress_health_check=list(HealthCheck))
@given(grammar=texts, text=words)
@example(grammar="root ::= " + "(" * 20000, text=b"")
@example(grammar='root ::= "a"{5,2}', text=b"aaaaa")
@example(grammar='root ::= e root "a" | "b"\ne ::= f\nf ::= "x"?', text=b"b")
def test_any_text_as_a_grammar(grammar, text):
    judge(grammar, text)


def build(compiler: str, flags: list[str], name: str) -> Path:
    """The target, linked with the very sources of the engine."""
    BUILT.mkdir(parents=True, exist_ok=True)
    program = BUILT / name
    command = [compiler, "-std=c++17", "-g", "-O1", *flags, "-o", str(program), *map(str, SOURCES)]
    subprocess.run(command, check=True, cwd=ROOT)
    return program


def test_the_corpus_holds_under_the_sanitizers():
    program = build(
        "g++", ["-DREPLAY_MAIN", "-fsanitize=address,undefined", "-fno-sanitize-recover"], "grammar-replay"
    )
    files = sorted(CORPUS.iterdir())
    done = subprocess.run([str(program), *map(str, files)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert f"replayed {len(files)} files" in done.stdout


def test_libfuzzer():
    clang = next((path for name in ("clang++", "clang++-14") if (path := shutil.which(name))), None)
    if clang is None:
        pytest.fail("libFuzzer needs clang: apt install clang libclang-rt-14-dev")
    program = build(
        clang, ["-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"], "grammar-libfuzzer"
    )
    found = BUILT / "grammar"
    found.mkdir(exist_ok=True)
    flags = [f"-max_total_time={N_SECONDS}", "-timeout=10", "-rss_limit_mb=2048", "-max_len=4096"]
    done = subprocess.run(
        [str(program), *flags, f"-artifact_prefix={BUILT}/crash-", str(found), str(CORPUS)],
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stderr[-600:])
    assert done.returncode == 0, done.stderr[-6000:]
