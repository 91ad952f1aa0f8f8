"""The flags of a daemon that serves many models, and when it is one."""

from __future__ import annotations

import shlex

import pytest

from llamad.flags.parse import FlagError, Parsed, parse


def parsed(line: str, **environ: str) -> Parsed:
    return parse(shlex.split(line), environ)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "-c 8192 --port 0",
        "--models-dir ./models_directory",
        "--models-preset models.ini --host 0.0.0.0",
        "--models-dir d --models-preset p --models-max 0 --no-models-autoload",
    ],
)
def test_no_model_is_a_router(line: str) -> None:
    result = parsed(line)
    assert result.is_router
    assert result.warnings == []


@pytest.mark.parametrize("line", ["-m m.gguf", "-hf a/b", "-mu https://host/m.gguf", "--gpt-oss-20b-default"])
def test_a_named_model_is_the_only_one(line: str) -> None:
    assert not parsed(line).is_router


def test_a_model_in_the_environment_counts() -> None:
    assert not parsed("", LLAMA_ARG_MODEL="m.gguf").is_router
    assert parsed("", LLAMA_ARG_MODELS_DIR="d").settings.daemon.models_dir == "d"


def test_help_is_not_a_router() -> None:
    assert not parsed("--help").is_router


@pytest.mark.parametrize("named", ["-m m.gguf", "-hf a/b"])
@pytest.mark.parametrize("listed", ["--models-dir d", "--models-preset p.ini"])
def test_one_model_and_a_list_contradict_each_other(named: str, listed: str) -> None:
    with pytest.raises(FlagError) as error:
        parsed(f"{named} {listed}")
    flag = "--hf-repo" if "-hf" in named else "-m"
    assert str(error.value).startswith((flag, "-hf"))
    assert f"{listed.split()[0]} lists many; leave one out" in str(error.value)


def test_limits_of_many_models_warn_with_one() -> None:
    assert parsed("-m m.gguf --models-max 2 --models-wait-seconds 5").warnings == [
        "--models-max has no effect: -m names the only model",
        "--models-wait-seconds has no effect: -m names the only model",
    ]
    assert parsed("-m m.gguf --models-max 4 --models-autoload").warnings == []


def test_what_belongs_to_one_model_warns_with_many() -> None:
    (warning,) = parsed("--models-dir d --alias x").warnings
    assert warning.startswith("--alias has no effect: it is for one model")


def test_defaults_are_those_of_llama_server() -> None:
    daemon = parsed("").settings.daemon
    assert (daemon.models_max, daemon.models_autoload) == (4, True)
    assert (daemon.models_memory_max, daemon.models_wait_seconds, daemon.models_queue_max) == (0, 30.0, 512)


def test_sleep() -> None:
    assert parsed("-m m.gguf").settings.model.sleep_idle_seconds == -1
    assert parsed("-m m.gguf --sleep-idle-seconds 600").settings.model.sleep_idle_seconds == 600
    assert parsed("-m m.gguf --sleep-idle-seconds -1").settings.model.sleep_idle_seconds == -1
    for text in ("0", "-2", "1.5"):
        with pytest.raises(FlagError):
            parsed(f"-m m.gguf --sleep-idle-seconds {text}")


def test_the_sources_are_kept_apart() -> None:
    file, environ, argv = parsed("-c 1024", LLAMA_ARG_TOP_K="5").layers
    assert file == ()
    assert [(one.flag.dest, one.texts) for one in environ] == [("top_k", ("5",))]
    assert [(one.flag.dest, one.texts) for one in argv] == [("n_ctx", ("1024",))]
