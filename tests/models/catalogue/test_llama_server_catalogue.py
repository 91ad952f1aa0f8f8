"""The same presets, folders and caches in llama-server's router: same names, sources, aliases, tags and flags.

llama-server starts no model until one is asked for, so the files need not be models.
"""

from __future__ import annotations

from typing import Any

import pytest
from support.many_models.catalogues import Place
from support.peer import llama_server

from llamad.flags.table import TABLE
from llamad.models.catalogue.catalogue import Catalogue
from llamad.models.catalogue.entry import Entry
from llamad.models.catalogue.errors import CatalogueError

# The tests start llama-server with these, and it adds an address for each model.
NOT_COMPARED = ("hosts", "port", "n_threads")
ON_OFF = {"1": "true", "on": "true", "enabled": "true", "0": "false", "off": "false", "disabled": "false"}

PRESET = """; comment
# comment
version = 1

[*]
ctx-size = 4096 ; for all
temp = 0.50
stop-timeout = 5
[plain]
model = {model}
[spellings]
m = {model}
c = 512
np = 2
LLAMA_ARG_UBATCH = 64
ngl = 0
[switches]
model = {model}
repack = off
no-context-shift = 1
kv-unified = on
check-tensors = 1
jinja = true
no-warmup = false
[values]
model = {model}
chat-template-kwargs = {{"enable_thinking": false}}
temp=0.7#comment
top-k	=	7	;	comment
[names]
model = {model}
alias = second, first
tags = t2, t1 , t0
load-on-startup = off
[twice]
model = nowhere.gguf
temp = 0.9
[a/b:q8_0]
temp = 0.1
[folder]
top-k = 3
[twice]
model = {model}
[ spaced name]
model = {model}
[own]
hf = a/b:Q4_0
dedup-cache-models = 1
"""


def ours(place: Place, preset: str) -> Catalogue:
    return place.read(preset, "--threads", "1", "--top-p", "0.25")


def theirs(place: Place) -> dict[str, dict[str, Any]]:
    flags = ["--models-preset", str(place.preset)]
    flags += ["--models-dir", str(place.models)] if place.models.is_dir() else []
    with llama_server(None, *flags, "--top-p", "0.25", env=dict(place.environ)) as server:
        return {one["id"]: one for one in server.get("/models").json["data"]}


def flags_of(args: list[str] | tuple[str, ...]) -> dict[str, list[str]]:
    """The flags of a command line with their values, without the program. A flag may have several spellings."""
    flags: dict[str, list[str]] = {}
    for word in args[1:]:
        if word.startswith("--"):
            flag, is_negated = TABLE.by_name[word]
            flags[f"no {flag.dest}" if is_negated else flag.dest] = values = []
        else:
            values.append(word)
    return {name: values for name, values in flags.items() if name not in NOT_COMPARED}


def keys_of(preset: str) -> tuple[str, dict[str, str]]:
    header, *lines = preset.strip().splitlines()
    pairs = (line.split(" = ", 1) for line in lines)
    keys = {spelled(key): ON_OFF.get(value, value) for key, value in pairs}
    return header, {key: value for key, value in keys.items() if key not in NOT_COMPARED}


def spelled(key: str) -> str:
    return TABLE.by_name[f"--{key}"][0].dest if f"--{key}" in TABLE.by_name else key


def compare(entry: Entry, peer: dict[str, Any]) -> None:
    assert list(entry.aliases) == peer["aliases"]
    assert list(entry.tags) == peer["tags"]
    assert entry.source == peer["source"]
    assert flags_of(entry.args) == flags_of(peer["status"]["args"])
    assert keys_of(entry.preset) == keys_of(peer["status"]["preset"])


def test_the_same_models_with_the_same_flags(place: Place) -> None:
    model = place.file("m.gguf")
    place.cached("a/b", "m-Q4_0.gguf", "m-UD-Q8_0.gguf", "mmproj-m-F16.gguf", "mtp-m-Q4_0.gguf")
    place.cached("c/d", "sub/n-Q4_K_M-00001-of-00002.gguf", "sub/n-Q4_K_M-00002-of-00002.gguf")
    for path in (
        "top-Q4_0.gguf",
        "mmproj-top.gguf",
        "folder/x-Q4_0.gguf",
        "folder/mmproj-x.gguf",
        "x.gguf.gguf",
    ):
        place.file(f"models/{path}")
    catalogue = ours(place, PRESET.format(model=model))
    peers = theirs(place)
    listed = {name: entry for name, entry in catalogue.entries.items() if not entry.is_hidden}
    assert list(listed) == list(peers)
    assert len(peers) == 13
    assert not [entry.reason for entry in listed.values() if entry.reason]
    for name, entry in listed.items():
        compare(entry, peers[name])


def test_keys_before_any_section_are_a_model(place: Place) -> None:
    catalogue = ours(place, f"model = {place.file('m.gguf')}\ntemp = 0.5\n")
    peers = theirs(place)
    assert list(catalogue.entries) == list(peers) == ["default"]
    compare(catalogue.entries["default"], peers["default"])


REFUSED = [" [a]\n", "[a]\n temp = 1\n", "[a]\ntemp\n", "[a] b\n", "[a\n", "[]\n", "[a]\n1k = 1\n"]


@pytest.mark.parametrize("text", REFUSED)
def test_a_file_that_both_refuse(place: Place, text: str) -> None:
    with pytest.raises(CatalogueError):
        ours(place, text)
    with pytest.raises(AssertionError, match="llama-server does not serve"):
        theirs(place)


@pytest.mark.parametrize(
    "text", ["[a]\nno-such-key = 1\n", "[*]\nno-such-key = 1\n", "[a]\nalias = x\n[b]\nalias = x\n"]
)
def test_a_section_that_stops_llama_server(place: Place, text: str) -> None:
    """Ours starts, with the model disabled, unless the section is for all models."""
    if "[*]" in text:
        with pytest.raises(CatalogueError):
            ours(place, text)
    else:
        assert list(ours(place, text).entries.values())[-1].reason
    with pytest.raises(AssertionError, match="llama-server does not serve"):
        theirs(place)


def test_what_llama_server_loses(place: Place) -> None:
    """Several quantizations, deeper folders and split models at the top."""
    for path in (
        "two/x-Q4_0.gguf",
        "two/x-Q8_0.gguf",
        "p/m/y.gguf",
        "big-00001-of-00002.gguf",
        "big-00002-of-00002.gguf",
    ):
        place.file(f"models/{path}")
    assert list(ours(place, "").entries) == ["big", "p/m", "two:Q4_0", "two:Q8_0"]
    assert list(theirs(place)) == ["big-00001-of-00002", "big-00002-of-00002", "two"]
