"""The units of deploy/systemd, as systemd-analyze and llamad's own parser read them, and what install.sh refuses.
tests/deploy/test_boot.py runs them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.imports import ROOT

from llamad.flags.parse import parse
from llamad.flags.table import TABLE
from llamad.systemd import exit_codes

DEPLOY = ROOT / "deploy"
SYSTEMD = DEPLOY / "systemd"
UNITS = ("llamad.service", "llamad@.service", "llamad.socket")
DROP_INS = sorted(path.stem for path in (SYSTEMD / "drop-ins").glob("*.conf"))
# In tenths: 2.0.
EXPOSURE_MAX = 20

needs_analyze = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd-analyze")
needs_shellcheck = pytest.mark.skipif(not shutil.which("shellcheck"), reason="there is no shellcheck")


def directives(name: str) -> dict[str, list[str]]:
    """The values of a unit's keys, in order."""
    settings: dict[str, list[str]] = {}
    for line in (SYSTEMD / name).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith(("#", "[")):
            key, _, value = line.partition("=")
            settings.setdefault(key, []).append(value)
    return settings


def variables(text: str) -> dict[str, str]:
    return dict(re.findall(r"^([A-Z][A-Z_]*)=(.*)$", text, re.MULTILINE))


def env_file() -> tuple[dict[str, str], dict[str, str]]:
    """The variables of the environment file: those that are set, and those that are comments."""
    text = (SYSTEMD / "llamad.env").read_text(encoding="utf-8")
    return variables(text), variables(re.sub(r"^#(?=LLAMA)", "", text, flags=re.MULTILINE))


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The units with a program that exists."""
    for name in UNITS:
        text = (SYSTEMD / name).read_text(encoding="utf-8")
        program = Path(sys.executable).parent / "llamad"
        (tmp_path / name).write_text(text.replace("/opt/llamad/current/bin/llamad", str(program)))
    return tmp_path


def add(folder: Path, drop_in: str) -> None:
    for name in UNITS[:2]:
        (folder / f"{name}.d").mkdir(exist_ok=True)
        shutil.copy(SYSTEMD / "drop-ins" / f"{drop_in}.conf", folder / f"{name}.d")


def analyze(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def complaints(unit: Path) -> str:
    """An unknown key is a warning, and the exit status 0: what counts is that nothing is said."""
    done = analyze("verify", "--man=no", unit)
    return done.stdout + (f"status {done.returncode}" if done.returncode else "")


@needs_analyze
@pytest.mark.parametrize("name", UNITS)
def test_systemd_has_nothing_to_say_about_the_units(installed, name):
    assert complaints(installed / name) == ""


@needs_analyze
@pytest.mark.parametrize("drop_in", DROP_INS)
def test_nor_about_a_drop_in(installed, drop_in):
    add(installed, drop_in)
    for name in UNITS[:2]:
        assert complaints(installed / name) == ""


@needs_analyze
@pytest.mark.parametrize(
    ("right", "wrong"), [("WatchdogSec=", "WatchdogSeconds="), ("OOMPolicy=continue", "OOMPolicy=go-on")]
)
def test_it_would_say_what_is_wrong(installed, right, wrong):
    path = installed / "llamad.service"
    text = path.read_text()
    assert right in text
    path.write_text(text.replace(right, wrong))
    assert complaints(path) != ""


def exposed(unit: Path) -> bool:
    done = analyze("security", "--offline=true", f"--threshold={EXPOSURE_MAX}", "--no-pager", unit)
    assert "Overall exposure level" in done.stdout
    return done.returncode != 0


@needs_analyze
@pytest.mark.parametrize("drop_in", ["", *DROP_INS])
def test_the_exposure_is_small(installed, drop_in):
    if drop_in:
        add(installed, drop_in)
    assert not exposed(installed / "llamad.service")


@needs_analyze
def test_a_unit_without_its_system_call_filter_is_exposed(installed):
    path = installed / "llamad.service"
    path.write_text(re.sub(r"^(SystemCall|Private|Capab).*\n", "", path.read_text(), flags=re.MULTILINE))
    assert exposed(path)


def test_the_two_services_differ_in_their_names_only():
    one, several = directives("llamad.service"), directives("llamad@.service")
    assert one.keys() == several.keys()
    differing = {key for key in one if one[key] != several[key]}
    assert differing == {
        "Description",
        "ExecStart",
        "StateDirectory",
        "RuntimeDirectory",
        "WorkingDirectory",
    }
    assert all("%i" in value for key in differing for value in several[key])


@pytest.mark.parametrize("name", ["gpu", "keys", "tls"])
def test_the_gpu_drop_in_opens_devices_and_the_others_only_bring_files(name):
    opened = directives(f"drop-ins/{name}.conf").keys() - {"After", "ExecStartPre"}
    if name == "gpu":
        assert opened == {"PrivateDevices", "DevicePolicy", "DeviceAllow", "SupplementaryGroups"}
    else:
        assert opened == {"LoadCredential", "Environment"}


@pytest.mark.parametrize("drop_in", ["keys", "tls"])
def test_llamad_reads_the_credentials(drop_in):
    settings = directives(f"drop-ins/{drop_in}.conf")
    loaded = {value.split(":")[0] for value in settings["LoadCredential"]}
    environ = dict(pair.split("=") for value in settings["Environment"] for pair in value.split())
    assert {path.removeprefix("%d/") for path in environ.values()} == loaded
    parsed = parse([], environ)
    assert not parsed.warnings
    assert len(parsed.given) == len(loaded)


def test_llamad_knows_every_variable_of_the_environment_file():
    active, described = env_file()
    assert active.items() < described.items()
    parsed = parse([], active)
    assert not parsed.warnings
    for name, value in described.items():
        # Without a model the variables are those of a router.
        is_named = name in ("LLAMA_ARG_MODEL", "LLAMA_ARG_HF_REPO") or name.startswith("LLAMA_ARG_MODELS_")
        parsed = parse([] if is_named else ["-m", "model.gguf"], {name: value})
        assert not parsed.warnings, name
        assert len(parsed.given - {"model"} or parsed.given) == 1, name


def test_the_limits_fit_the_settings():
    unit = directives("llamad.service")
    settings = parse([], env_file()[0]).settings
    assert int(unit["LimitNOFILE"][0]) > 2 * settings.daemon.connections_max
    assert (
        int(unit["TimeoutStopSec"][0]) > settings.daemon.drain_seconds + settings.daemon.drain_delay_seconds
    )
    (address,) = directives("llamad.socket")["ListenStream"]
    assert address == f"{settings.daemon.hosts[0]}:{settings.daemon.port}"


def test_llamad_knows_its_command_line_and_its_exit_status():
    unit = directives("llamad.service")
    _, *arguments = unit["ExecStart"][0].split()
    flags = [argument for argument in arguments if argument.startswith("-")]
    assert flags == ["--env-file"]
    assert set(flags) <= set(TABLE.by_name)
    assert unit["RestartPreventExitStatus"] == [str(exit_codes.WRONG_FLAGS)]


def install(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", str(DEPLOY / "install.sh"), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@needs_shellcheck
def test_the_script_is_clean():
    done = subprocess.run(
        ["shellcheck", str(DEPLOY / "install.sh")], capture_output=True, text=True, check=False
    )
    assert done.stdout == ""


def test_the_scripts_help_has_every_option():
    text = (DEPLOY / "install.sh").read_text()
    body = text[text.index("read_options()") : text.index("check()")]
    options = set(re.findall(r"--[a-z-]+", body)) - {"--help"}
    done = install("--help")
    assert done.returncode == 0
    assert options == set(re.findall(r"^  (--[a-z-]+)", done.stdout, re.MULTILINE))


@pytest.mark.parametrize(
    ("arguments", "status", "reason"),
    [
        (["--frobnicate"], 2, "unknown option"),
        (["--wheel"], 2, "needs a value"),
        (["--prefix", "relative"], 2, "absolute"),
        (["--prefix", "/"], 2, "absolute"),
        (["--prefix", "/opt/a|b"], 2, "only letters"),
        (["--with", "wings"], 2, "gpu, keys and tls"),
        (["--purge"], 2, "--uninstall"),
        (["--uninstall", "--with", "keys"], 2, "installs nothing"),
        (["--wheel", "/nonexistent.whl"], 1, "no such file"),
        (["--wheels", "/nonexistent"], 1, "no such folder"),
    ],
)
def test_the_script_refuses_before_it_changes_anything(arguments, status, reason):
    done = install(*arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert reason in done.stderr
