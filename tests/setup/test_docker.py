"""The container's recipe, read without a container engine: its stages, what it copies, what it starts."""

import json
import os
import re
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import yaml
from support.fake_daemon import Faked

from llamad.engine.testing.fake import Fake
from llamad.flags.parse import parse
from llamad.flags.table import TABLE

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "deploy" / "docker"
VARIANTS = ("cpu", "cuda")
VARIABLES = {name for flag in TABLE.flags for name in (*flag.env, *flag.env_off)}


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions and their arguments, in order."""
    text = re.sub(r"^\s*#.*\n", "", (DOCKER / "Dockerfile").read_text(), flags=re.M)
    lines = re.sub(r"\\\n\s*", "", text).split("\n")
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines if line.strip()]


def filled(text: str, values: dict[str, str]) -> str:
    return re.sub(r"\$\{(\w+)(?::-(\w+))?\}", lambda name: values[name[1]] or name[2], text)


def stages(variant: str) -> dict[str, list[tuple[str, str]]]:
    """Each stage's instructions, with those of the stages it starts from; only its base image is left as FROM."""
    values, found, current = {}, {}, None
    for name, rest in instructions():
        if name == "ARG" and current is None:
            key, _, value = rest.partition("=")
            values[key] = variant if key == "VARIANT" else value
        elif name == "FROM":
            image, title = filled(rest, values).split(" AS ")
            current = found[title] = list(found.get(image, [("FROM", image)]))
        else:
            assert current is not None
            current.append((name, rest))
    return found


def variables(stage: list[tuple[str, str]]) -> dict[str, str]:
    return dict(
        (key, value.strip('"'))
        for name, rest in stage
        if name == "ENV"
        for key, value in re.findall(r'(\w+)=("[^"]*"|\S+)', rest)
    )


def last(stage: list[tuple[str, str]], name: str) -> str:
    return [rest for one, rest in stage if one == name][-1]


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_stage_starts_from_an_image_or_an_earlier_stage(variant):
    names = stages(variant)
    assert list(names)[-1] == "llamad"  # what is built without --target
    for stage in names.values():
        assert stage[0][0] == "FROM"
        assert re.fullmatch(r"(python|nvidia/cuda):[0-9][\w.-]+", stage[0][1]), stage[0]
    used = {name for name in re.findall(r"from=(\w+)", str(names))}
    assert used == {"build"}
    is_cuda = variant == "cuda"
    assert ("devel" in names["build"][0][1], "runtime" in names["llamad"][0][1]) == (is_cuda, is_cuda)


@pytest.mark.parametrize("variant", VARIANTS)
def test_nothing_is_made_for_the_machine_that_builds(variant):
    env = variables(stages(variant)["build"])
    assert env["LLAMAD_NATIVE"] == "0"
    assert "-DGGML_NATIVE=OFF" in env["LLAMAD_CMAKE_ARGS"]
    assert ("-DGGML_CPU_ALL_VARIANTS=ON" in env["LLAMAD_CMAKE_ARGS"]) is (variant == "cpu")
    assert ("-DGGML_CUDA=ON" in env["LLAMAD_CMAKE_ARGS"]) is (variant == "cuda")


def is_left_out(path: str) -> bool:
    """By the rules of .dockerignore, of which the last that fits decides."""
    left_out = False
    for line in (DOCKER / "Dockerfile.dockerignore").read_text().split("\n"):
        rule = line.strip()
        if not rule or rule.startswith("#"):
            continue
        pattern = rule.removeprefix("!").replace("**/", "*")
        parents = [path, *map(str, Path(path).parents)]
        names = [*parents, *(Path(one).name for one in parents)] if "**/" in rule else parents
        if any(fnmatchcase(name, pattern) for name in names):
            left_out = not rule.startswith("!")
    return left_out


def tracked(*folders: str) -> list[str]:
    done = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_what_is_copied_is_in_the_context_and_is_all_that_a_build_needs():
    sources = [path for name, rest in instructions() if name == "COPY" for path in rest.split()[:-1]]
    assert all((ROOT / path).exists() for path in sources)
    copied = set(tracked(*sources))
    assert {"setup.py", "pyproject.toml", "llamad/page/index.html", "ext/llama/embed.cpp"} <= copied
    assert set(tracked("llamad", "ext", "vendor")) <= copied
    assert [path for path in sorted(copied) if is_left_out(path)] == []
    built = (
        "llamad/lib/libllama.so",
        "llamad/http/exchange.so",
        "llamad/__pycache__/x.pyc",
        ".git/HEAD",
        "build/x",
    )
    assert all(is_left_out(path) for path in (*built, ".venv/bin/python", "tests/conftest.py"))


@pytest.mark.parametrize("variant", VARIANTS)
def test_it_runs_as_nobody_in_particular(variant):
    stage = stages(variant)["llamad"]
    assert last(stage, "USER") == "10001:10001"
    assert "--uid 10001" in str(stage)
    assert json.loads(last(stage, "ENTRYPOINT")) == ["llamad"]
    env = variables(stage)
    assert env["LLAMA_CACHE"] == "/cache"
    assert "--owner=llamad --group=llamad /cache" in str(stage)
    ours = {name: value for name, value in env.items() if name.startswith("LLAMA_ARG")}
    assert set(ours) <= VARIABLES
    settings = parse(["-m", "models/7B/ggml-model.gguf"], ours).settings
    assert (settings.daemon.hosts, settings.daemon.port) == (("0.0.0.0",), int(last(stage, "EXPOSE")))


def test_the_health_check_tells_ready_from_loading():
    command = json.loads(last(stages("cpu")["llamad"], "HEALTHCHECK").partition("CMD ")[2])
    assert command[0] == "python3"
    for load in (True, False):
        with Faked(Fake(), load=load) as server:
            env = {**os.environ, "LLAMA_ARG_PORT": str(server.client.port)}
            done = subprocess.run([sys.executable, *command[1:]], env=env, capture_output=True, timeout=30)
            assert (done.returncode == 0) is load, done.stderr


def test_compose():
    text = (DOCKER / "compose.yaml").read_text()
    services = yaml.safe_load(text)["services"]
    assert [name for name, one in services.items() if "profiles" not in one] == ["llamad"]
    for name, variant in (("llamad", "cpu"), ("llamad-gpu", "cuda")):
        one = services[name]
        assert one["build"]["args"] == {"VARIANT": variant}
        context = DOCKER / one["build"]["context"]
        assert context.resolve() == ROOT
        assert (context / one["build"]["dockerfile"]).resolve() == DOCKER / "Dockerfile"
        given = {key: shell(str(value), MODEL="m.gguf") for key, value in one["environment"].items()}
        assert set(given) <= VARIABLES
        parsed = parse([], given)
        assert parsed.warnings == []
        assert parsed.settings.model.model == "/models/m.gguf"
        assert parsed.settings.daemon.api_keys == ()
        assert parsed.settings.daemon.drain_seconds < int(one["stop_grace_period"].removesuffix("s"))
        assert shell(one["volumes"][0]) == "./models:/models:ro"
        assert shell(one["ports"][0]) == "127.0.0.1:8080:8080"
    (device,) = services["llamad-gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])


def shell(text: str, **values: str) -> str:
    """Compose's variables are the shell's."""
    done = subprocess.run(
        ["bash", "-c", f'printf %s "{text}"'], env=values, capture_output=True, text=True, check=True
    )
    return done.stdout
