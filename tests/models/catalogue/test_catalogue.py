"""The catalogue: which source wins, names that clash, models of the cache, reloads, and presets of any content."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.many_models.catalogues import COMMIT, MODEL, Place

from llamad.flags.env_file import Line
from llamad.flags.parse import parse
from llamad.flags.table import TABLE
from llamad.models.catalogue.catalogue import difference, read
from llamad.models.catalogue.errors import CatalogueError

# Precedence.


def test_a_later_source_wins(place: Place) -> None:
    """The sources set one option after the other, from the one with the least weight."""
    place.file("models/x.gguf")
    steps: list[tuple[str, tuple[str, ...], dict[str, str], int]] = [
        ("", (), {}, 40),
        ("", (), {"LLAMA_ARG_TOP_K": "1"}, 1),
        ("[*]\ntop-k = 2\n", (), {"LLAMA_ARG_TOP_K": "1"}, 2),
        ("[*]\ntop-k = 2\n[x]\ntop-k = 3\n", (), {"LLAMA_ARG_TOP_K": "1"}, 3),
        ("[*]\ntop-k = 2\n[x]\ntop-k = 3\n", ("--top-k", "4"), {}, 4),
    ]
    for preset, flags, environ, expected in steps:
        entry = place.entry(preset, *flags, **environ)
        assert entry.settings is not None
        assert entry.settings.options.top_k == expected


def test_the_environment_beats_the_file_of_variables(place: Place) -> None:
    place.file("models/x.gguf")
    lines = {name: Line(name, "9") for name in ("LLAMA_ARG_TOP_K", "LLAMA_ARG_CTX_SIZE")}
    parsed = parse(["--models-dir", str(place.models)], {"LLAMA_ARG_TOP_K": "1"}, lines)
    settings = read(parsed, place.environ).entries["x"].settings
    assert settings is not None
    assert (settings.options.top_k, settings.n_ctx) == (1, 9)


def test_lists_are_replaced_not_joined(place: Place) -> None:
    place.file("models/x.gguf")
    a, b = place.file("a.gguf"), place.file("b.gguf")
    entry = place.entry(f"[*]\nlora = {a}\n[x]\nlora = {b}\n")
    assert entry.settings is not None
    assert [one.path for one in entry.settings.lora] == [b]


def test_a_switch_that_a_section_turns_off(place: Place) -> None:
    place.file("models/x.gguf")
    entry = place.entry("[*]\nmlock = on\nembedding = on\n[x]\nmlock = off\nembedding = 0\n")
    assert entry.settings is not None
    assert not entry.settings.mlock
    assert not entry.settings.embeddings


def test_a_section_configures_a_model_of_the_folder(place: Place) -> None:
    path = place.file("models/x.gguf")
    entry = place.entry("[x]\nctx-size = 512\n")
    assert (entry.source, entry.reason) == ("preset", "")
    assert entry.settings is not None
    assert (entry.settings.model, entry.settings.n_ctx) == (path, 512)


def test_a_section_with_its_own_model_replaces_the_one_of_the_cache(place: Place) -> None:
    """In llama-server it keeps the repository, and fails to load (llama.cpp's issue 24439)."""
    place.cached("a/b", "m-Q4_0.gguf")
    path = place.file("mine.gguf")
    entry = place.entry(f"[a/b:Q4_0]\nmodel = {path}\n")
    assert entry.settings is not None
    assert (entry.settings.model, entry.settings.hf_repo, entry.settings.is_remote) == (path, None, False)
    assert entry.warnings == ()


def test_the_folder_replaces_a_model_of_the_cache(place: Place) -> None:
    place.cached("a/b", "m-Q4_0.gguf")
    place.file("models/a/b/m-Q4_0.gguf")
    path = place.file("models/a/b/m-Q8_0.gguf")
    entries = place.read().entries
    assert {name: one.source for name, one in entries.items()} == {
        "a/b:Q4_0": "models_dir",
        "a/b:Q8_0": "models_dir",
    }
    assert entries["a/b:Q8_0"].settings is not None
    assert entries["a/b:Q8_0"].settings.model == path


def test_what_belongs_to_one_model_is_not_taken_from_the_command_line(place: Place) -> None:
    place.file("models/x.gguf")
    (entry,) = place.read(None, "--alias", "other", "--mmproj", "p.gguf", "--tags", "t").entries.values()
    assert entry.settings is not None
    assert (entry.aliases, entry.tags, entry.settings.mmproj) == ((), ("t",), None)
    assert entry.settings.aliases == ("x",)


def test_settings_of_the_daemon_that_a_model_depends_on(place: Place) -> None:
    place.file("models/x.gguf")
    for flags, wants_states in (((), False), (("--slots",), True)):
        (entry,) = place.read(None, *flags).entries.values()
        assert entry.settings is not None
        assert entry.settings.wants_states is wants_states


def test_a_warning_of_the_command_line_is_not_repeated(place: Place) -> None:
    place.file("models/x.gguf")
    assert place.entry("[x]\nthreads-http = 3\n", "--video-fps", "3").warnings == (
        "threads-http (line 2) has no effect: one event loop serves all connections",
    )


# Names.


def test_names_and_aliases(place: Place) -> None:
    model = place.file("m.gguf")
    catalogue = place.read(f"[b]\nmodel = {model}\nalias = z, y\ntags = t2,t1\n[a]\nmodel = {model}\n")
    assert list(catalogue.entries) == ["a", "b"]
    entry = catalogue.entries["b"]
    assert (entry.aliases, entry.tags) == (("y", "z"), ("t1", "t2"))
    assert entry.settings is not None
    assert entry.settings.alias == "b"
    assert catalogue.find("b") is catalogue.find("y") is catalogue.find("z") is entry
    assert catalogue.find("t1") is catalogue.find("B") is catalogue.find("") is None


def test_aliases_that_clash(place: Place) -> None:
    model = place.file("m.gguf")
    text = "".join(
        f"[{name}]\nmodel = {model}\nalias = {alias}\n"
        for name, alias in (("a", "c,a"), ("b", "x"), ("c", "y"), ("d", "x,w"))
    )
    catalogue = place.read(text)
    assert {name: one.reason for name, one in catalogue.entries.items()} == {
        "a": "the alias c is a name of the model c, too; choose another",
        "b": "",
        "c": "",
        "d": "the alias x is a name of the model b, too; choose another",
    }
    entries = {name: catalogue.find(name) for name in "cxwy"}
    assert {name: one.id for name, one in entries.items() if one is not None} == {
        "c": "c",
        "x": "b",
        "w": "d",
        "y": "c",
    }


@pytest.mark.parametrize(("name", "expected"), [("a", "a"), ("alias", "a"), ("a/b:q4_0", "a/b:Q4_0")])
def test_the_default_model(place: Place, name: str, expected: str) -> None:
    place.cached("a/b", "m-Q4_0.gguf")
    model = place.file("m.gguf")
    catalogue = place.read(f"[*]\ndefault-model = {name}\n[a]\nmodel = {model}\nalias = alias\n")
    assert (catalogue.default_model, catalogue.warnings) == (expected, ())


def test_a_default_model_that_is_not_there(place: Place) -> None:
    catalogue = place.read("[*]\ndefault-model = nobody\n")
    assert catalogue.default_model is None
    assert catalogue.warnings == ("[*] default-model: there is no model nobody; requests must name one",)


# The cache.


def test_models_of_the_cache(place: Place) -> None:
    paths = place.cached("a/b", "m-Q4_0.gguf", "m-UD-Q8_K_XL.gguf", "mmproj-m-F16.gguf", "mtp-m.gguf")
    place.cached("c/d", "plain.gguf")
    place.cached("e/f", "m-Q4_0-00001-of-00002.gguf")  # not complete
    place.cached("g/h", "plain.gguf", "m-Q4_0.gguf")
    entries = place.read().entries
    assert list(entries) == ["a/b:Q4_0", "a/b:Q8_K_XL", "c/d", "g/h:Q4_0"]
    first = entries["a/b:Q4_0"]
    assert (first.source, first.reason) == ("cache", "")
    assert first.settings is not None
    assert (first.settings.model, first.settings.mmproj) == (paths[0], paths[2])
    assert not first.settings.is_remote
    assert first.settings.aliases == ("a/b:Q4_0",)
    assert first.args == ("llamad", "--alias", "a/b:Q4_0", "--hf-repo", "a/b:Q4_0")


def test_a_repository_that_is_not_in_the_cache_is_remote(place: Place) -> None:
    entry = place.entry("[x]\nhf = a/b:Q4_0\nhf-token = secret\n")
    assert (entry.reason, entry.settings is not None and entry.settings.is_remote) == ("", True)
    assert entry.settings is not None
    assert entry.settings.hf_token == "secret"
    offline = place.entry("[x]\nhf = a/b:Q4_0\noffline = on\n")
    assert "a/b:Q4_0 is not in the cache" in offline.reason


def test_a_projector_that_nobody_wants(place: Place) -> None:
    place.cached("a/b", "m-Q4_0.gguf", "mmproj-m-F16.gguf")
    entry = place.entry("[a/b:Q4_0]\nno-mmproj = on\n")
    assert entry.settings is not None
    assert entry.settings.mmproj is None


def test_models_of_the_cache_that_a_preset_hides(place: Place) -> None:
    place.cached("a/b", "m-Q4_0.gguf", "m-Q8_0.gguf")
    place.cached("c/d", "n-Q4_0.gguf")
    text = "[x]\nhf = a/b:Q4_0\ndedup-cache-models = on\n[y]\nhf = c/d\n"
    catalogue = place.read(text)
    hidden = {name for name, one in catalogue.entries.items() if one.is_hidden}
    assert hidden == {"a/b:Q4_0"}
    assert catalogue.find("a/b:Q4_0") is not None
    both = place.read(text.replace("dedup-cache-models = on\n", "") + "[*]\ndedup-cache-models = on\n")
    assert {name for name, one in both.entries.items() if one.is_hidden} == {"a/b:Q4_0", "c/d:Q4_0"}


# Files that cannot be read.


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"[a]\nk", "line 2"),
        (b"[a]\nk = \xff\n", "line 2: this is not UTF-8"),
        (b"#" * ((4 << 20) + 1), "is larger than 4 MiB"),
        (MODEL, "line 1"),
    ],
)
def test_a_preset_that_is_none(place: Place, data: bytes, message: str) -> None:
    place.preset.write_bytes(data)
    with pytest.raises(CatalogueError, match=message):
        place.read(None, "--models-preset", str(place.preset))


def test_a_preset_that_is_not_there(place: Place) -> None:
    with pytest.raises(CatalogueError, match="No such file or directory; name an INI file"):
        place.read(None, "--models-preset", str(place.preset))


def test_a_byte_order_mark(place: Place) -> None:
    assert list(place.read("\ufeff[a]\n").entries) == ["a"]


# Reloads.


def test_what_a_reload_changes(place: Place) -> None:
    model = place.file("m.gguf")
    place.cached("a/b", "m-Q4_0.gguf")
    old = place.read(f"[same]\nmodel = {model}\n[changed]\nmodel = {model}\n[removed]\nmodel = {model}\n")
    place.cached("a/b", "m-Q4_0.gguf", commit=COMMIT[::-1])
    new = place.read(
        f"[same]\nmodel = {model}\n[changed]\nmodel = {model}\ntemp = 0\n[added]\nmodel = {model}\n"
    )
    result = difference(old, new)
    assert (result.added, result.removed, result.changed) == (
        ("added",),
        ("removed",),
        ("a/b:Q4_0", "changed"),
    )
    # Another model of the same engine came before it, which is no change.
    assert (old.entries["same"].engine, new.entries["same"].engine) == ("changed", "added")
    assert difference(new, new) == msgspec.structs.replace(result, added=(), removed=(), changed=())


def test_a_missing_file_is_a_change_when_it_comes(place: Place) -> None:
    text = f"[x]\nmodel = {place.root / 'late.gguf'}\n"
    old = place.read(text)
    assert old.entries["x"].reason
    place.file("late.gguf")
    assert difference(old, place.read(text)).changed == ("x",)


# Any content.

KEYS = st.sampled_from(
    [
        *sorted(name.lstrip("-") for name in TABLE.by_name),
        *(
            "version",
            "pin",
            "load-on-startup",
            "stop-timeout",
            "dedup-cache-models",
            "default-model",
            "HF_TOKEN",
        ),
    ]
)
VALUES = st.one_of(
    st.sampled_from(
        ["", "1", "0", "on", "off", "x", "-1", "a:b", "a=b", "1,2", "models/x.gguf", "a/b", "auto"]
    ),
    st.text(st.characters(exclude_characters="\0\r\n", exclude_categories=["Cs"]), max_size=12),
)
NAMES = st.sampled_from(["x", "y", "*", "default", "a/b:Q4_0", "a:b", "é"])
LINES = st.lists(st.builds("{} = {}".format, KEYS, VALUES), max_size=4).map("\n".join)
FILES = st.lists(st.builds("[{}]\n{}".format, NAMES, LINES), max_size=4).map("\n".join)


@given(FILES)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_preset_gives_a_catalogue_or_the_declared_error(tmp_path: Path, text: str) -> None:
    place = Place(tmp_path)
    place.file("models/x.gguf")
    try:
        catalogue = place.read(text)
    except CatalogueError:
        return
    assert list(catalogue.entries) == sorted(catalogue.entries)
    for name, entry in catalogue.entries.items():
        assert (entry.settings is None) == bool(entry.reason)
        assert entry.reason.isprintable()
        assert catalogue.find(name) is entry
        for alias in entry.aliases:
            assert catalogue.find(alias) is entry
        assert catalogue.entries[entry.engine].engine == entry.engine


def test_two_hundred_models_are_read_quickly(place: Place) -> None:
    for i in range(100):
        place.file(f"models/folder-{i}/m-{i}-Q4_0.gguf")
        place.cached(f"user/repo-{i}", f"m-{i}-Q4_0.gguf", "mmproj-F16.gguf")
    text = "".join(f"[folder-{i}]\ntemp = 0.{i}\n" for i in range(100))
    place.read(text)  # imports
    t_start = time.thread_time()
    assert len(place.read(text).entries) == 200
    assert time.thread_time() - t_start < 1.0
