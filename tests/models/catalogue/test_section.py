"""The keys of a preset's section: flags without dashes, variables, and keys that only presets have."""

from __future__ import annotations

import pytest
from support.many_models.catalogues import Place

from llamad.models.catalogue.errors import CatalogueError


@pytest.mark.parametrize(
    ("line", "dest", "value"),
    [
        ("c = 4096", "n_ctx", 4096),
        ("ctx-size = 4096", "n_ctx", 4096),
        ("LLAMA_ARG_CTX_SIZE = 4096", "n_ctx", 4096),
        ("np = 2", "n_parallel", 2),
        ("mmap = off", "mmap", False),
        ("mmap = 0", "mmap", False),
        ("mmap = disabled", "mmap", False),
        ("mmap = false", "mmap", False),
        ("mmap = enabled", "mmap", True),
        ("no-mmap = on", "mmap", False),
        ("no-mmap = 1", "mmap", False),
        ("no-mmap = off", "mmap", True),
        ("LLAMA_ARG_NO_MMAP = 1", "mmap", False),
        ("mlock = true", "mlock", True),
        ("mlock =", "mlock", True),
        ("mlock = false", "mlock", False),
        ("flash-attn =", "flash_attn", "on"),
        ("flash-attn = 0", "flash_attn", "off"),
        ("system-prompt-file = a b", "system_prompt_file", "a b"),
        ("tags = x, y", "tags", ("x", "y")),
        ("control-vector-layer-range = 1:3", "control_vector_layer_range", (1, 3)),  # two values, joined
        ("sleep-idle-seconds = 60", "sleep_idle_seconds", 60),
        (
            'chat-template-kwargs = {"enable_thinking": false}',
            "chat_template_kwargs",
            '{"enable_thinking": false}',
        ),
    ],
)
def test_a_key_is_a_flag(place: Place, line: str, dest: str, value: object) -> None:
    entry = place.entry(f"[x]\nmodel = {place.file('m.gguf')}\n{line}\n")
    assert entry.reason == ""
    assert getattr(entry.settings, dest) == value


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("ctx-sise = 1", "ctx-sise (line 3): there is no such flag; did you mean ctx-size?"),
        ("--ctx-size = 1", None),
        ("ctx-size = many", "ctx-size (line 3): 'many' is not an integer"),
        ("ctx_size = 1", "ctx_size (line 3): there is no such flag"),
        ("mmap = maybe", "mmap (line 3): 'maybe' is not yes or no"),
        ("load-on-startup = perhaps", "load-on-startup (line 3): 'perhaps' is not yes or no"),
        ("stop-timeout = -1", "stop-timeout (line 3): -1 is out of range"),
        ("sleep-idle-seconds = 0", "sleep-idle-seconds (line 3): 0 is out of range"),
        ("default-model = x", "default-model (line 3): it belongs into [*]"),
        ("help = 1", "help (line 3): it is not a setting of a model"),
        ("docker-repo = x", "docker-repo (line 3) needs models of Docker Hub"),
        ("hf-repo = x", "hf-repo (line 3): 'x' is not USER/MODEL"),
        ("spec-fixed = 3", "--spec-fixed needs drafts"),
        ("model-draft = nope.gguf", "nope.gguf: No such file or directory; -md"),
        ("lora = nope.gguf", "nope.gguf: No such file or directory; --lora"),
        ("mmproj = nope.gguf", "nope.gguf: No such file or directory; --mmproj"),
        ("model = nope.gguf", "nope.gguf: No such file or directory; -m"),
    ],
)
def test_a_wrong_key_disables_its_model_only(place: Place, line: str, reason: str | None) -> None:
    good = place.file("m.gguf")
    text = f"[bad]\nmodel = {good}\n{line}\n[good]\nmodel = {good}\n"
    if reason is None:
        with pytest.raises(CatalogueError):
            place.read(text)
        return
    entries = place.read(text).entries
    assert entries["bad"].reason.startswith(reason)
    assert entries["bad"].settings is None
    assert entries["good"].reason == ""
    assert entries["good"].settings is not None


def test_a_token_is_not_quoted_in_a_reason(place: Place) -> None:
    assert "sesame" not in place.entry("[x]\napi-key = ,sesame\nhf-token =\n").reason


def test_a_section_without_a_model(place: Place) -> None:
    reason = "there is no model in its section: set model, hf-repo or model-url"
    assert place.entry("[x]\nctx-size = 1\n").reason == reason
    entry = place.entry("ctx-size = 1\n")
    assert (entry.id, entry.reason) == ("default", f"{reason}; keys for all models belong below [*]")


def test_a_version_alone_is_no_model(place: Place) -> None:
    assert place.read("version = 1\n").entries == {}
    assert place.read("version = 1\n\n[*]\nctx-size = 1\n").entries == {}


@pytest.mark.parametrize(
    "key", ["models-max = 2", "host = 0.0.0.0", "port = 1", "api-key = k", "metrics = on"]
)
def test_a_setting_of_the_daemon_is_left_out_with_a_warning(place: Place, key: str) -> None:
    entry = place.entry(f"[x]\nmodel = {place.file('m.gguf')}\n{key}\n")
    name = key.split()[0]
    assert entry.reason == ""
    assert entry.warnings == (
        f"{name} (line 3) is ignored: it is for the whole daemon; use --{name} on the command line",
    )


def test_a_wrong_key_for_all_models_is_an_error_of_the_file(place: Place) -> None:
    with pytest.raises(CatalogueError) as error:
        place.read("[*]\nctx-sise = 1\n")
    assert "section [*]: ctx-sise (line 2): there is no such flag" in str(error.value)


def test_the_same_setting_twice(place: Place) -> None:
    entry = place.entry(f"[x]\nmodel = {place.file('m.gguf')}\nctx-size = 1024\nc = 2048\n")
    assert entry.settings is not None
    assert entry.settings.n_ctx == 2048
    assert entry.warnings == ("ctx-size (line 3) is ignored: c (line 4) is the same setting",)


def test_all_wrong_keys_are_named_and_the_names_stay(place: Place) -> None:
    catalogue = place.read("[x]\nalias = y\nctx-size = a\ntop-k = b\npin = c\n")
    entry = catalogue.find("y")
    assert entry is not None
    assert entry.reason == (
        "ctx-size (line 3): 'a' is not an integer; top-k (line 4): 'b' is not an integer;"
        " pin (line 5): 'c' is not yes or no; use 1 or 0, on or off, true or false"
    )


def test_one_name_for_all_models_is_an_error_of_the_file(place: Place) -> None:
    with pytest.raises(CatalogueError) as error:
        place.read("[*]\nalias = x\n")
    assert "alias (line 2): a name belongs to one model" in str(error.value)


def test_a_list_without_a_value_is_empty(place: Place) -> None:
    model, lora = place.file("m.gguf"), place.file("lora.gguf")
    text = f"[*]\nlora = {lora}\ntags = t\n[x]\nmodel = {model}\n"
    entries = place.read(f"{text}[y]\nmodel = {model}\nlora =\ntags =\nalias =\n").entries
    assert [(len(one.settings.lora), one.tags, one.aliases) for one in entries.values() if one.settings] == [
        (1, ("t",), ()),
        (0, (), ()),
    ]


def test_a_flag_that_stands_for_others(place: Place) -> None:
    entry = place.entry("[fim]\nfim-qwen-1.5b-default = on\nbatch-size = 512\n")
    assert entry.settings is not None
    assert entry.settings.hf_repo == "ggml-org/Qwen2.5-Coder-1.5B-Q8_0-GGUF"
    assert (entry.settings.n_ubatch, entry.settings.n_batch) == (1024, 512)
    assert entry.settings.is_remote
    assert entry.warnings == ()


def test_keys_that_only_presets_have(place: Place) -> None:
    model = place.file("m.gguf")
    entry = place.entry(f"[x]\nmodel = {model}\nload-on-startup = 1\nstop-timeout = 3\npin = true\n")
    assert (entry.loads_on_startup, entry.stop_timeout, entry.is_pinned) == (True, 3, True)
    entry = place.entry(f"[x]\nmodel = {model}\n")
    assert (entry.loads_on_startup, entry.stop_timeout, entry.is_pinned) == (False, 10, False)
    entry = place.entry(f"[*]\npin = 1\nstop-timeout = 1\n[x]\nmodel = {model}\npin = 0\n")
    assert (entry.stop_timeout, entry.is_pinned) == (1, False)
