"""What clients see of an entry: its flags as a command line and as a section, and no secret in either."""

from __future__ import annotations

import pytest
from support.many_models.catalogues import Place

from llamad.flags.parse import parse
from llamad.flags.settings import DaemonSettings
from llamad.flags.table import TABLE
from llamad.flags.types.flag import Preset, Ready, Request

TEXT = """[*]
ctx-size = 4096
[x]
model = {model}
temp = 0.70
no-mmap = 1
mlock = off
alias = y
tags = t
load-on-startup = true
stop-timeout = 5
"""


def test_a_command_line_and_a_section(place: Place) -> None:
    model = place.file("m.gguf")
    entry = place.entry(
        TEXT.format(model=model), "--top-k", "7", "--jinja", "--port", "1", LLAMA_ARG_TOP_P="0.5"
    )
    assert entry.args[:3] == ("llamad", "--alias", "x")
    line = list(entry.args[1:])
    # Flags of the daemon are not in it, nor is the environment, which a command line would inherit.
    assert sorted(line) == sorted(
        f"--alias x --ctx-size 4096 --jinja --no-mmap --model {model} --tags t --temp 0.70 --top-k 7".split()
    )
    assert parse(line, {}).settings.model.mmap is False
    assert sorted(entry.preset.splitlines()) == sorted(
        f"[x]|ctx-size = 4096|jinja = 1|load-on-startup = true|mlock = false|mmap = false|model = {model}"
        "|stop-timeout = 5|temp = 0.70|top-k = 7".split("|")
    )
    assert entry.preset.startswith("[x]\n")


def test_the_section_can_be_read_again(place: Place) -> None:
    model = place.file("m.gguf")
    entry = place.entry(TEXT.format(model=model), "--top-k", "7")
    again = place.entry(entry.preset)
    assert entry.settings is not None
    assert again.settings is not None
    assert (again.settings.options, again.settings.n_ctx, again.settings.mmap) == (
        entry.settings.options,
        entry.settings.n_ctx,
        entry.settings.mmap,
    )
    assert (again.loads_on_startup, again.stop_timeout) == (True, 5)


def test_a_line_break_does_not_end_a_value(place: Place) -> None:
    entry = place.entry(f"[x]\nmodel = {place.file('m.gguf')}\n", "--grammar", 'root ::= "a"\nb ::= "b"')
    assert 'grammar = root ::= "a"\\nb ::= "b"' in entry.preset.splitlines()


SECRETS = [
    flag
    for flag in TABLE.flags
    if flag.secret and isinstance(flag.status, Ready) and not isinstance(flag.kind, Request | Preset)
]


@pytest.mark.parametrize("flag", SECRETS, ids=[flag.title for flag in SECRETS])
def test_secrets_are_not_shown(place: Place, flag: object) -> None:
    title = flag.title  # type: ignore[attr-defined]
    secret = "https://host/sesame.gguf" if title.endswith("url") else "sesame"
    model = place.file("m.gguf")
    for text, flags, environ in (
        (f"[x]\nmodel = {model}\n{title.lstrip('-')} = {secret}\n", (), {}),
        (f"[*]\n{title.lstrip('-')} = {secret}\n[x]\nmodel = {model}\n", (), {}),
        (f"[x]\nmodel = {model}\n", (title, secret), {}),
        (f"[x]\nmodel = {model}\n", (), dict.fromkeys(flag.env, secret)),  # type: ignore[attr-defined]
    ):
        if (flags or environ) and title in ("--env-file", "--model-url", "--ssl-key-file"):
            continue  # read by others, name the only model, or need another
        entry = place.entry(text, *flags, **environ)
        shown = [*entry.args, entry.preset, entry.reason, *entry.warnings]
        assert not [one for one in shown if "sesame" in one]


def test_there_are_secrets_of_models_and_of_the_daemon() -> None:
    dests = {flag.dest for flag in SECRETS}
    assert "hf_token" in dests
    assert dests & set(DaemonSettings.__struct_fields__)
