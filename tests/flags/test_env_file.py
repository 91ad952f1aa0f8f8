"""--env-file: its syntax, which is a part of systemd's, and its weight against flags and the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from llamad.flags import env_file
from llamad.flags.parse import FlagError, Parsed
from llamad.flags.sources import Sources


def variables(tmp_path: Path, data: str | bytes) -> dict[str, str]:
    path = tmp_path / "llamad.env"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return {name: line.text for name, line in env_file.read(str(path)).items()}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("\n  \n# A=1\n ; B=2\n\t#\n", {}),
        ("A=1", {"A": "1"}),
        ("  A=  a b  \nB=", {"A": "a b", "B": ""}),
        ("A=x # y", {"A": "x # y"}),
        ("A=b=c", {"A": "b=c"}),
        ("A=1\r\nB=2\rC=3\n", {"A": "1", "B": "2", "C": "3"}),
        ("A=1\nA=2", {"A": "2"}),
        (r"""A='a "b" \n $c'""", {"A": r'a "b" \n $c'}),
        (r'''A="a \"b\" \\ \$c \` \n"''', {"A": r'a "b" \ $c ` \n'}),
        ("A=''\nB=\"\"  ", {"A": "", "B": ""}),
        ("A=it's", {"A": "it's"}),
        ("\ufeffA=ü", {"A": "ü"}),
    ],
)
def test_lines(tmp_path: Path, text: str, found: dict[str, str]) -> None:
    assert variables(tmp_path, text) == found


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("A=1\n\nexport B=2", "llamad.env:3: expected NAME=value, a comment or an empty line"),
        ("A", "llamad.env:1: expected NAME=value"),
        ("=1", "llamad.env:1: expected NAME=value"),
        ("1A=1", "llamad.env:1: expected NAME=value"),
        ("A =1", "llamad.env:1: expected NAME=value"),
        ("A='x", "llamad.env:1: A: the value must end with the quote it begins with"),
        ("A='x' y", "llamad.env:1: A: the value must end with the quote it begins with"),
        ('A="x', "llamad.env:1: A: the value must end with the quote it begins with"),
        ('A="x\\"', "llamad.env:1: A: the value must end with the quote it begins with"),
        ("#\nA=x \\\nB", "llamad.env:2: A: put a value with a backslash in single quotes"),
        ("A=\0", "llamad.env:1: a line has a NUL byte"),
        (b"A=\xff", "llamad.env is not UTF-8"),
        (b"#" * (2 << 20), "llamad.env has more than 1048576 bytes"),
    ],
)
def test_what_is_wrong_names_its_line(tmp_path: Path, data: str | bytes, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        variables(tmp_path, data)


def read(tmp_path: Path, text: str, line: str = "", environ: Mapping[str, str] | None = None) -> Parsed:
    path = tmp_path / "llamad.env"
    path.write_text(text)
    return Sources(["-m", "x.gguf", "--env-file", str(path), *line.split()], environ or {}).read()


def complaint(tmp_path: Path, text: str) -> str:
    with pytest.raises(FlagError) as caught:
        read(tmp_path, text)
    return str(caught.value)


def test_flags_win_then_the_environment_then_the_file(tmp_path: Path) -> None:
    text = "LLAMA_ARG_PORT=1\nLLAMA_ARG_CTX_SIZE=1\nLLAMA_ARG_N_MAX=1\n"
    environ = {"LLAMA_ARG_PORT": "2", "LLAMA_ARG_CTX_SIZE": "2"}
    parsed = read(tmp_path, text, "--port 3", environ)
    settings = parsed.settings
    assert (settings.daemon.port, settings.model.n_ctx, settings.model.n_max) == (3, 2, 1)
    assert {"port", "n_ctx", "n_max"} <= parsed.given
    file = tmp_path / "llamad.env"
    assert sorted(parsed.warnings) == [
        f"{file}:1: LLAMA_ARG_PORT is ignored: --port on the command line wins",
        f"{file}:2: LLAMA_ARG_CTX_SIZE is ignored: LLAMA_ARG_CTX_SIZE in the environment wins",
        "LLAMA_ARG_PORT is ignored: --port on the command line wins",
    ]


def test_a_variable_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "llamad.env"
    path.write_text("LLAMA_ARG_PORT=1")
    assert Sources(["-m", "x"], {"LLAMA_ARG_ENV_FILE": str(path)}).read().settings.daemon.port == 1
    assert Sources(["-m", "x"], {"LLAMA_ARG_ENV_FILE": ""}).read().settings.daemon.env_file is None


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "llamad.env"
    path.write_text("LLAMA_ARG_PORT=1")
    sources = Sources(["-m", "x", "--env-file", str(path)], {})
    assert sources.read().settings.daemon.port == 1
    path.write_text("LLAMA_ARG_PORT=2")
    assert sources.read().settings.daemon.port == 2
    path.write_text("LLAMA_ARG_PORT=x")
    with pytest.raises(FlagError):
        sources.read()
    assert sources.parsed is not None
    assert sources.parsed.settings.daemon.port == 2


def test_the_model_of_more_weight_is_served(tmp_path: Path) -> None:
    path = tmp_path / "llamad.env"
    path.write_text("LLAMA_ARG_HF_REPO=some/model")
    line = ["--env-file", str(path)]
    assert Sources(line, {}).read().settings.model.hf_repo == "some/model"
    parsed = Sources(line, {"LLAMA_ARG_MODEL": "x.gguf"}).read()
    assert (parsed.settings.model.hf_repo, parsed.settings.model.model) == (None, "x.gguf")
    assert parsed.warnings == [f"{path}:1: LLAMA_ARG_HF_REPO is ignored: LLAMA_ARG_MODEL names the model"]


def test_names_that_nobody_reads_are_warned_of(tmp_path: Path) -> None:
    parsed = read(tmp_path, "LLAMA_ARG_CTX_SIZES=1\nCUDA_VISIBLE_DEVICES=0\n")
    file = tmp_path / "llamad.env"
    assert parsed.warnings == [
        f"{file}:2: CUDA_VISIBLE_DEVICES is ignored: no flag has this variable; set it in the environment",
        f"{file}:1: LLAMA_ARG_CTX_SIZES is ignored: did you mean LLAMA_ARG_CTX_SIZE?",
    ]


def test_values_are_checked_and_secrets_are_not_quoted(tmp_path: Path) -> None:
    file = tmp_path / "llamad.env"
    assert complaint(tmp_path, "\nLLAMA_ARG_PORT=x") == f"{file}:2: LLAMA_ARG_PORT: 'x' is not an integer"
    assert "hush" not in complaint(tmp_path, "LLAMA_API_KEY='hush")
    assert "hush" not in complaint(tmp_path, "hush")
    assert complaint(tmp_path, "LLAMA_ARG_ENV_FILE=y").endswith(
        "a file cannot name another; put all variables into one"
    )
    with pytest.raises(FlagError, match=r"--env-file /no/such: No such file"):
        Sources(["--env-file", "/no/such"], {}).read()


def test_help_needs_no_file() -> None:
    assert Sources(["--env-file", "/no/such", "--help"], {}).read().action.value == "help"
