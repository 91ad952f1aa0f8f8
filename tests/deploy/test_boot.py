"""llamad as a service of a machine that systemd boots: installed, started, reloaded, killed, upgraded and removed.

`make soak` runs it, in order. LLAMAD_TEST_WHEELS names a folder with wheels of llamad and of what it needs; else they
are made from the checkout.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.booted import machine as booted
from support.booted.machine import Machine
from support.imports import ROOT
from support.live_daemon import model_path

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(bool(booted.why_not()), reason=booted.why_not()),
]

URL = "http://127.0.0.1:8080"
INSTANCE = """\
LLAMA_ARG_MODEL=/srv/models/model.gguf
LLAMA_ARG_THREADS=1
LLAMA_ARG_N_PARALLEL=4
LLAMA_ARG_CTX_SIZE=2048
LLAMA_ARG_ENDPOINT_METRICS=on
LLAMA_ARG_DRAIN_SECONDS=30
"""
SETTINGS = INSTANCE + "LLAMA_ARG_SLOT_SAVE_PATH=/var/lib/llamad\n"
DEPLOY = ROOT / "deploy"
INSTALL = ("sh", "/mnt/deploy/install.sh")
FROM_WHEELS = ("--wheels", "/mnt/wheels", "--wheel")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory) -> Path:
    named = os.environ.get("LLAMAD_TEST_WHEELS")
    if named:
        return Path(named)
    folder = tmp_path_factory.mktemp("wheels")
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "-w", str(folder), str(ROOT)], check=True)
    return folder


@pytest.fixture(scope="module")
def wheel(wheels) -> str:
    (found,) = wheels.glob("llamad-*.whl")
    return f"/mnt/wheels/{found.name}"


@pytest.fixture(scope="module")
def machine(tmp_path_factory, wheels) -> Iterator[Machine]:
    model = Path(model_path())
    folder = tmp_path_factory.mktemp("model")
    folder.chmod(0o755)
    shutil.copy(model, folder / "model.gguf")
    folders = {
        "/mnt/wheels": wheels,
        "/mnt/deploy": DEPLOY,
        "/mnt/booted": Path(booted.__file__).parent,
        "/srv/models": folder,
    }
    with Machine(tmp_path_factory.mktemp("machine") / "console.log", folders) as machine:
        yield machine


@pytest.fixture(scope="module")
def service(machine, wheel) -> Machine:
    """Installed with keys, with the socket and running."""
    machine.run(*INSTALL, *FROM_WHEELS, wheel, "--with", "keys")
    machine.write("/etc/llamad/llamad.env", SETTINGS)
    machine.run("/opt/llamad/current/bin/llamad", "check", "--env-file", "/etc/llamad/llamad.env")
    machine.run("systemctl", "enable", "--quiet", "llamad.socket", "llamad.service")
    machine.run("systemctl", "start", "llamad.socket")
    systemctl(machine, "start")
    return machine


def systemctl(machine: Machine, action: str, unit: str = "llamad.service") -> None:
    done = machine.run("systemctl", action, unit, check=False)
    assert done.returncode == 0, journal(machine, unit)


def reload(machine: Machine) -> None:
    """Until it has happened: systemctl may return once the signal is sent."""
    n_before = journal(machine).count("reloaded")
    systemctl(machine, "reload")
    machine.until(lambda: journal(machine).count("reloaded") > n_before)


def key(machine: Machine) -> str:
    return machine.ask("cat", "/etc/llamad/keys")


def status(machine: Machine, path: str, *arguments: str, url: str = URL) -> str:
    shown = machine.run(
        "curl", "-s", "-m", "60", "-o", "/dev/null", "-w", "%{http_code}", *arguments, url + path, check=False
    )
    return shown.stdout


def answers(machine: Machine) -> bool:
    bearer = f"Authorization: Bearer {key(machine)}"
    return status(machine, "/completion", "-H", bearer, "-d", '{"prompt": "Once", "n_predict": 2}') == "200"


def main_pid(machine: Machine) -> str:
    return machine.shown("llamad.service", "MainPID")


def journal(machine: Machine, unit: str = "llamad.service") -> str:
    return machine.ask("journalctl", "--no-pager", "-o", "cat", "-u", unit)


def engine_pids(machine: Machine) -> list[str]:
    pids = machine.run("pgrep", "-f", "llamad[.]engine", check=False)
    return pids.stdout.split()


class Outcome:
    """What became of the requests of clients, once they have ended."""

    n_answers = 0
    failures: list[str]


@contextmanager
def load(machine: Machine) -> Iterator[Outcome]:
    """Clients ask all the time."""
    process = machine.start("python3", "/mnt/booted/load.py", URL, key(machine))
    outcome = Outcome()
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    try:
        yield outcome
    finally:
        out, _ = process.communicate(timeout=300)
        said = json.loads(out)
        outcome.n_answers, outcome.failures = said["answers"], said["failures"]
        print(f"{outcome.n_answers} answers, {len(outcome.failures)} failures")


def test_it_runs_as_its_user_without_rights(service):
    assert service.shown("llamad.service", "ActiveState") == "active"
    assert service.shown("llamad.service", "StatusText").startswith("serving")
    facts = dict(
        line.split(":\t", 1)
        for line in service.ask("cat", f"/proc/{main_pid(service)}/status").splitlines()
        if ":\t" in line
    )
    assert facts["Uid"].split()[0] == service.ask("id", "-u", "llamad")
    assert (facts["Seccomp"], facts["NoNewPrivs"], int(facts["CapEff"], 16)) == ("2", "1", 0)
    assert answers(service)
    rated = service.run("systemd-analyze", "security", "--no-pager", "--threshold=20", "llamad.service")
    assert "Overall exposure level for llamad.service" in rated.stdout


def test_keys_come_as_a_credential(service):
    assert service.ask("stat", "-c", "%U %a", "/etc/llamad/keys") == "root 600"
    assert status(service, "/completion", "-d", '{"prompt": "Once"}') == "401"
    # A copy: other keys need a restart.
    old = key(service)
    service.write("/etc/llamad/keys", "another-key\n")
    reload(service)
    assert not answers(service)
    systemctl(service, "restart")
    assert answers(service)
    service.write("/etc/llamad/keys", f"{old}\n")
    systemctl(service, "restart")


def test_states_lie_in_the_state_directory(service):
    save = ("-H", f"Authorization: Bearer {key(service)}", "-d", '{"filename": "kept.bin"}')
    assert status(service, "/slots/0?action=save", *save) == "200"
    owner, mode = service.ask("find", "/var/lib/llamad/", "-name", "kept.bin", "-printf", "%u %m").split()
    assert (owner, int(mode, 8) & 0o077) == ("llamad", 0)


def test_a_reload_applies_limits_and_drops_nothing(service):
    before = main_pid(service)
    with load(service) as outcome:
        service.write("/etc/llamad/llamad.env", SETTINGS + "LLAMA_ARG_BODY_MAX_BYTES=4096\n")
        reload(service)
        big = ("-H", f"Authorization: Bearer {key(service)}", "-d", json.dumps({"prompt": "a" * 5000}))
        assert status(service, "/completion", *big) == "413"
        service.write("/etc/llamad/llamad.env", SETTINGS + "LLAMA_ARG_BODY_MAX_BYTES=many\n")
        reload(service)
        assert status(service, "/completion", *big) == "413", "a broken file changes nothing"
        assert "reload failed" in service.shown("llamad.service", "StatusText")
        service.write("/etc/llamad/llamad.env", SETTINGS)
        reload(service)
    assert main_pid(service) == before
    assert outcome.failures == []
    assert outcome.n_answers


def test_a_killed_engine_leaves_the_unit_running(service):
    before, (engine,) = main_pid(service), engine_pids(service)
    service.run("kill", "-9", engine)
    service.until(lambda: engine_pids(service) not in ([], [engine]) and answers(service))
    assert main_pid(service) == before
    assert service.shown("llamad.service", "NRestarts") == "0"


def test_a_killed_front_is_started_again_and_no_client_is_refused(service):
    before = main_pid(service)
    with load(service) as outcome:
        service.run("kill", "-9", before)
        service.until(lambda: main_pid(service) not in (before, "0"))
        service.until(lambda: service.shown("llamad.service", "SubState") == "running")
    assert service.shown("llamad.service", "NRestarts") == "1"
    assert len(engine_pids(service)) == 1, "the old engine went with its front"
    assert outcome.n_answers
    assert len(outcome.failures) <= 3, "those that were being answered"
    assert not [one for one in outcome.failures if "refused" in one]


def test_a_stuck_front_is_restarted_by_the_watchdog(service):
    folder = "/run/systemd/system/llamad.service.d"
    service.run("mkdir", "-p", folder)
    service.write(f"{folder}/watchdog.conf", "[Service]\nWatchdogSec=3\n")
    service.run("systemctl", "daemon-reload")
    systemctl(service, "restart")
    before = main_pid(service)
    service.run("kill", "-STOP", before)
    service.until(lambda: main_pid(service) not in (before, "0"))
    service.until(lambda: answers(service))
    assert "Watchdog timeout" in journal(service)
    service.run("rm", "-r", folder)
    service.run("systemctl", "daemon-reload")
    systemctl(service, "restart")


def test_wrong_settings_are_not_tried_again(service):
    service.write("/etc/llamad/wrong.env", "LLAMA_ARG_CTX_SIZE=many\n")
    assert service.run("systemctl", "start", "llamad@wrong", check=False).returncode != 0
    assert service.shown("llamad@wrong", "ActiveState") == "failed"
    assert service.shown("llamad@wrong", "ExecMainStatus") == "2"
    assert service.shown("llamad@wrong", "NRestarts") == "0"
    assert "wrong.env:1" in journal(service, "llamad@wrong")


def test_a_second_instance_serves_beside_the_first(service):
    service.write("/etc/llamad/second.env", INSTANCE)
    socket = (DEPLOY / "systemd" / "llamad.socket").read_text()
    service.write("/etc/systemd/system/llamad@second.socket", socket.replace(":8080", ":8081"))
    service.run("systemctl", "daemon-reload")
    service.run("systemctl", "enable", "--quiet", "--now", "llamad@second.socket")
    service.run("systemctl", "enable", "--quiet", "llamad@second.service")
    assert service.shown("llamad@second", "ActiveState") == "inactive"
    assert status(service, "/health", url="http://127.0.0.1:8081") == "200", "the connection starts it"
    assert service.shown("llamad@second", "ActiveState") == "active"
    assert service.ask("stat", "-L", "-c", "%F", "/var/lib/llamad-second") == "directory"
    assert answers(service)


def test_a_certificate_comes_as_a_credential_and_a_missing_one_stops_the_start(service):
    folder = "/run/systemd/system/llamad@tls.service.d"
    service.run("mkdir", "-p", folder)
    service.run("cp", "/mnt/deploy/systemd/drop-ins/tls.conf", folder)
    service.run("systemctl", "daemon-reload")
    service.write("/etc/llamad/tls.env", INSTANCE + "LLAMA_ARG_PORT=8082\n")
    assert service.run("systemctl", "start", "llamad@tls", check=False).returncode != 0
    assert service.shown("llamad@tls", "ExecMainStatus") == "243"
    service.run("systemctl", "stop", "llamad@tls")
    pair = ("-keyout", "/etc/llamad/tls.key", "-out", "/etc/llamad/tls.crt")
    service.run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", *pair)
    assert service.ask("stat", "-c", "%U %a", "/etc/llamad/tls.key") == "root 600"
    systemctl(service, "start", "llamad@tls")
    assert status(service, "/health", "-k", url="https://127.0.0.1:8082") == "200"
    systemctl(service, "stop", "llamad@tls")
    assert service.shown("llamad@tls", "Result") == "success"
    service.run("rm", "-r", folder)
    service.run("systemctl", "daemon-reload")


def test_an_upgrade_under_load_loses_no_connection_and_no_stream(service, wheel):
    before, release = main_pid(service), service.ask("readlink", "/opt/llamad/current")
    with load(service) as outcome:
        service.run(*INSTALL, *FROM_WHEELS, wheel)
    assert main_pid(service) != before
    current = service.ask("readlink", "/opt/llamad/current")
    assert current in service.ask("cat", f"/proc/{main_pid(service)}/cmdline")
    assert current != release
    assert outcome.failures == []
    assert outcome.n_answers
    assert service.shown("llamad@second", "ActiveState") == "active"


def test_a_release_that_does_not_run_changes_nothing(service):
    before, release = main_pid(service), service.ask("readlink", "/opt/llamad/current")
    service.run("sh", "-c", "echo broken > /tmp/llamad-0.1.0-py3-none-any.whl")
    done = service.run(*INSTALL, *FROM_WHEELS, "/tmp/llamad-0.1.0-py3-none-any.whl", check=False)
    assert done.returncode != 0
    assert service.ask("readlink", "/opt/llamad/current") == release
    assert main_pid(service) == before
    assert answers(service)


def test_it_is_removed_without_a_trace(service):
    systemctl(service, "stop")
    assert service.shown("llamad.service", "Result") == "success"
    service.run(*INSTALL, "--uninstall")
    assert service.run("systemctl", "cat", "llamad.service", check=False).returncode != 0
    assert service.run("pgrep", "-u", "llamad", check=False).stdout == ""
    assert service.ask("find", "/var/lib/llamad/", "-name", "kept.bin") != ""
    service.run(*INSTALL, "--uninstall", "--purge")
    left = service.ask("find", "/etc", "/opt", "/usr", "/var/lib", "/var/cache", "/run", "-name", "*llamad*")
    assert left == ""
    assert service.run("id", "llamad", check=False).returncode != 0
