"""The walk "Add an option of a request" in CONTRIBUTING.md: its example, in a copy of the package, works at once; an
option that the engine uses is spelled where the walk says, and nowhere else."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from llamad.options.sampling_table import SamplingOptions
from llamad.options.table import FIELDS

ROOT = Path(__file__).parents[2]
WALK = (
    (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("\n## Add an option of a request\n")[2]
)
FIELD, USE = re.findall(r"```python\n(.*?)```", WALK.partition("\n## ")[0], re.DOTALL)

# Runs where the copy is what `llamad` means.
ASKS = """
import llamad
from llamad.engine.testing.fake import Fake
from llamad.flags.table import TABLE
from llamad.options.page import page
from support.fake_daemon import Faked

assert llamad.__file__.startswith({folder!r})
assert "| `return_words` | boolean | false | `--return-words` | return the number of words" in page()
assert TABLE.by_name["--return-words"][0].env == ("LLAMA_ARG_RETURN_WORDS",)
for flags, default in ((), False), (("--return-words",), True):
    with Faked(Fake(script=b"one two three"), *flags) as server:
        client = server.client
        assert client.get("/props").json["default_generation_settings"]["return_words"] is default
        told = client.complete("x", return_words=True)
        assert (told["n_words"], told["generation_settings"]["return_words"]) == (3, True)
        assert ("n_words" in client.complete("x")) is default
        assert "n_words" not in client.complete("x", return_words=False)
        refused = client.post("/completion", {{"prompt": "x", "return_words": "yes"}})
        assert refused.status == 400 and "return_words" in refused.error["message"]
"""


def insert(path: Path, before: str, text: str) -> None:
    """Replace the link by a file with this text before that line."""
    source = path.read_text(encoding="utf-8")
    assert source.count(before) == 1
    path.unlink()
    path.write_text(source.replace(before, text + before), encoding="utf-8")


def test_the_example_works(tmp_path):
    package = tmp_path / "llamad"
    shutil.copytree(
        ROOT / "llamad", package, copy_function=os.symlink, ignore=shutil.ignore_patterns("__pycache__")
    )
    insert(package / "options/table.py", "    n_probs: Annotated[\n", FIELD)
    insert(package / "api/generate/completion_result.py", "    return completion_json.select(", USE)
    asked = subprocess.run(
        [sys.executable, "-c", ASKS.format(folder=str(tmp_path))],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT / 'tests'}"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert asked.returncode == 0, asked.stderr


def fields(path: str, struct: str) -> list[str]:
    """The fields of a struct that Cython declares."""
    source = (ROOT / path).read_text(encoding="utf-8")
    body = re.search(rf"ctypedef struct {struct}:\n((?:[ ]+\w+ [^\n]*\n)+)", source)
    assert body is not None
    return re.findall(r"^ +\w+ (\w+)", body[1], re.MULTILINE)


def spelled_in(name: str) -> set[str]:
    files = [path for top in ("llamad", "ext") for path in (ROOT / top).rglob("*")]
    sources = [path for path in files if path.suffix in (".py", ".pyi", ".pyx", ".pxd", ".h", ".cpp")]
    spelled = re.compile(rf"\b{name}\b")
    return {
        str(path.relative_to(ROOT)) for path in sources if spelled.search(path.read_text(encoding="utf-8"))
    }


def test_the_engines_options_are_those_of_the_table():
    attributes = {one.attribute for one in FIELDS.values()}
    assert set(fields("ext/llamad/protocol/messages.pxd", "TaskOptions")) <= attributes
    sampling = set(fields("ext/llamad/base/function_table.pxd", "llamad_sampling"))
    assert sampling - {"newline_token", "end_token", "n_samplers"} <= set(SamplingOptions.__struct_fields__)


def test_an_option_of_the_engine_is_declared_twice_and_used():
    ways = {
        "n_indent": {"llamad/options/table.py", "ext/llamad/protocol/messages.pxd"},
        "xtc_threshold": {
            "llamad/options/sampling_table.py",
            "ext/llama/function_table.h",
            "ext/llamad/base/function_table.pxd",
        },
    }
    # Where the engine uses it, how llama.cpp's sampler is made for the tests, and the names in a model's file.
    uses = re.compile(r"ext/llamad/(engine|tokenizer)/|ext/llama/shim.cpp|llamad/options/model_keys.py")
    for name, declared in ways.items():
        assert {path for path in spelled_in(name) if not uses.match(path)} == declared
