"""Which entries share an engine, and that the list of settings which do not matter to it is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.many_models.catalogues import Place

from llamad.flags.settings import ModelSettings
from llamad.models.catalogue import variants

ROOT = Path(__file__).parents[3]
SHARED = """temp = 0.1
top-k = 3
n-predict = 5
samplers = top_k;temperature
chat-template-kwargs = {"enable_thinking": false}
reasoning-budget = 0
reasoning = off
chat-template = chatml
system-prompt-file = prompt.txt
alias = z
tags = t
grammar = root ::= "a"
hf-token = x
pin = on
stop-timeout = 3""".splitlines()
OWN = """ctx-size = 512
parallel = 2
mmap = off
threads = 3
embeddings = on
cache-type-k = q8_0
special = on
flash-attn = off
sleep-idle-seconds = 60
queue-max = 3""".splitlines()


@pytest.mark.parametrize("line", SHARED)
def test_defaults_of_requests_do_not_need_an_engine(place: Place, line: str) -> None:
    model = place.file("m.gguf")
    entries = place.read(f"[a]\nmodel = {model}\n[b]\nmodel = {model}\n{line}\n").entries
    assert (entries["b"].reason, entries["b"].engine) == ("", "a")
    assert variants.same_engine(entries["a"], entries["b"])


@pytest.mark.parametrize("line", OWN)
def test_other_settings_do(place: Place, line: str) -> None:
    model = place.file("m.gguf")
    entries = place.read(f"[a]\nmodel = {model}\n[b]\nmodel = {model}\n{line}\n").entries
    assert (entries["b"].reason, entries["b"].engine) == ("", "b")
    is_limit = line.startswith(("queue-max", "sleep-idle-seconds"))
    assert variants.same_engine(entries["a"], entries["b"]) is is_limit


def test_limits_change_without_another_engine(place: Place) -> None:
    place.file("models/x.gguf")
    old, new = place.entry("[x]\nqueue-max = 3\n"), place.entry("[x]\nqueue-max = 4\ntemp = 1\n")
    assert variants.same_engine(old, new)
    assert old.settings is not None
    assert new.settings is not None
    assert variants.changed_limits(old.settings, new.settings) == {"queue_max": 4}
    assert variants.changed_limits(new.settings, new.settings) == {}


def test_a_model_by_its_path_and_by_its_name(place: Place) -> None:
    (path,) = place.cached("a/b", "m-Q4_0.gguf")
    entries = place.read(f"[path]\nmodel = {path}\n[name]\nhf = a/b\n[other]\nhf = c/d\n").entries
    assert {name: one.engine for name, one in entries.items()} == {
        "a/b:Q4_0": "a/b:Q4_0",
        "name": "a/b:Q4_0",
        "other": "other",
        "path": "a/b:Q4_0",
    }


def test_models_that_are_not_downloaded_yet(place: Place) -> None:
    entries = place.read("[a]\nhf = a/b:Q4_0\n[b]\nhf = a/b:Q4_0\ntemp = 1\n[c]\nhf = a/b:Q8_0\n").entries
    assert [one.engine for one in entries.values()] == ["a", "a", "c"]


def test_disabled_models_share_nothing(place: Place) -> None:
    entries = place.read("[a]\nmodel = nope\n[b]\nmodel = nope\n").entries
    assert [one.engine for one in entries.values()] == ["a", "b"]
    assert not variants.same_engine(entries["a"], entries["b"])


# The modules that start engines and talk to them; adapter_loading and the projector belong to a Host.
BELOW = ["llamad/engine", "llamad/client", "llamad/media", "llamad/models", "ext"]
NOT_SETTINGS = {
    # A field of a request, of a message or of a result with the same name.
    "chat_template",
    "context_shift",
    "escape",
    "grammar",
    "json_schema",
    "n_max",
    "options",
    "given",
    "reasoning",
    "tags",
    "aliases",
}


def test_no_engine_reads_what_only_endpoints_need() -> None:
    fields = set(ModelSettings.__struct_fields__)
    assert fields >= variants.OF_REQUESTS
    assert fields >= variants.OF_DOWNLOADS
    readers = []
    for folder in BELOW:
        for path in sorted((ROOT / folder).rglob("*.py*")):
            if path.suffix not in (".py", ".pyx") or "catalogue" in path.parts:
                continue
            text = path.read_text(encoding="utf-8")
            readers += [
                f"{path.relative_to(ROOT)}: {name}"
                for name in variants.OF_REQUESTS - NOT_SETTINGS
                if re.search(rf"\.{name}\b", text)
            ]
            readers += [
                f"{path.relative_to(ROOT)}: {name}"
                for name in variants.OF_REQUESTS & NOT_SETTINGS
                if re.search(rf"settings\.{name}\b", text) and path.name != "model_download.py"
            ]
    assert readers == []
