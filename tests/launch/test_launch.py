"""`llamad launch` finds or starts a daemon, and gives a program what it needs to use it."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.clients.launched import KEY, SERVED, Launch
from support.live_daemon import Live, until
from support.systemd.holder import Holder

from llamad.launch import listener
from llamad.launch import server as server_module

PROGRAMS = ("claude", "codex", "opencode", "qwen", "aider")


def seen(folder: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((folder / "seen.json").read_text())
    return result


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_uses_the_daemon_that_runs(
    program: str, server: Live, launch: Launch, tmp_path: Path
) -> None:
    port = str(server.client.port)
    done = launch(program, "--port", port, "--", "--resume", "x y", LLAMA_API_KEY=KEY)
    assert done.returncode == 7, done.stderr
    assert f"{program} uses echo at http://127.0.0.1:{port}, 65536 tokens of context" in done.stderr
    what = seen(tmp_path)
    assert what["arguments"][-2:] == ["--resume", "x y"]
    assert KEY not in " ".join(what["arguments"])
    assert any(f"--port\0{port}" in line for line in what["processes"])
    assert not any(KEY in line for line in what["processes"])
    texts = [*what["environ"].values(), *what["arguments"]]
    assert any(f"http://127.0.0.1:{port}" in text for text in texts)
    assert any("65536" in text for text in [*texts, *what["files"].values()]) or program == "qwen"
    assert [name for name, text in what["environ"].items() if text == KEY and name != "LLAMA_API_KEY"]
    assert server.process.poll() is None


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_is_shown_is_what_is_set(
    program: str, server: Live, launch: Launch, tmp_path: Path, stand_ins: Path
) -> None:
    """The lines of --print do the same in a shell as a launch does."""
    url = f"http://127.0.0.1:{server.client.port}"
    flags = (program, "--url", url, "--use", "echo", "-c", "65536")
    assert launch(*flags, "--", "a b", LLAMA_API_KEY=KEY).returncode == 7
    launched = seen(tmp_path)
    shown = launch(*flags, "--print", "--", "a b", LLAMA_API_KEY=KEY)
    assert shown.returncode == 0
    assert KEY not in shown.stdout
    environ = {
        "PATH": f"{stand_ins}:/usr/bin:/bin",
        "SEEN": str(tmp_path / "seen.json"),
        "LLAMA_API_KEY": KEY,
    }
    assert subprocess.run(["sh", "-c", shown.stdout], env=environ, check=False).returncode == 7
    printed = seen(tmp_path)
    assert printed["arguments"] == launched["arguments"]
    assert printed["files"] == launched["files"]
    names = set(printed["environ"]) - set(environ) - {"PWD", "SHLVL", "_", "OLDPWD", "LC_CTYPE"}
    assert names
    for name in names - set(printed["files"]):
        assert printed["environ"][name] == launched["environ"][name]


@pytest.mark.parametrize("program", PROGRAMS)
def test_showing_needs_nothing(program: str, launch: Launch) -> None:
    """Neither daemon, model nor program."""
    done = launch(program, "--port", str(free_port()), "--print", path="/usr/bin:/bin", LLAMA_API_KEY=KEY)
    assert (done.returncode, done.stderr) == (0, "")
    assert KEY not in done.stdout
    assert done.stdout.splitlines()[-1].startswith(program)


def test_showing_names_the_model_that_is_to_be_served(launch: Launch) -> None:
    done = launch("claude", "-m", "/nowhere/some.gguf", "--print", path="/usr/bin:/bin")
    assert done.returncode == 0
    assert "llamad -m /nowhere/some.gguf --spec auto" in done.stdout
    assert "export ANTHROPIC_MODEL=some.gguf" in done.stdout


def test_a_daemon_is_started_and_ends_with_the_program(
    scripted_model: str, launch: Launch, tmp_path: Path
) -> None:
    port = free_port()
    flags = ("-t", "1", "-m", scripted_model, *SERVED, "--port", str(port))
    done = launch("claude", *flags, LLAMA_API_KEY=KEY)
    assert done.returncode == 7, done.stderr
    assert "--spec auto --report-context 200000" in done.stderr
    assert "65536 tokens of context" in done.stderr
    what = seen(tmp_path)
    assert any(f"--port\0{port}\0--spec\0auto" in line for line in what["processes"])
    assert not any(KEY in line for line in what["processes"])
    environ = what["environ"]
    assert environ["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == environ["CLAUDE_CODE_AUTO_COMPACT_WINDOW"] == "200000"
    assert environ["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "16384"
    assert listener.find(port) == []


def test_the_scale_of_the_counts_of_a_running_daemon(
    scripted_model: str, launch: Launch, tmp_path: Path
) -> None:
    """Claude Code compacts by the window that its counts are told for."""
    with Live(*SERVED, "--report-context", "150000", model=scripted_model) as live:
        port = str(live.client.port)
        assert launch("claude", "--port", port).returncode == 7
    environ = seen(tmp_path)["environ"]
    assert environ["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "150000"
    assert environ["CLAUDE_CODE_AUTO_COMPACT_WINDOW"] == "150000"


def test_true_counts_of_a_small_context(server: Live, launch: Launch, tmp_path: Path) -> None:
    """Claude Code would compact all the time: it keeps 33,000 tokens of its window free."""
    assert launch("claude", "--port", str(server.client.port), LLAMA_API_KEY=KEY).returncode == 7
    assert "CLAUDE_CODE_AUTO_COMPACT_WINDOW" not in seen(tmp_path)["environ"]


def test_a_prompt_may_take_longer_than_claude_code_waits_by_itself(launch: Launch) -> None:
    """Its stream would end after 300 s, because neither comments nor pings count as events."""
    shown = launch("claude", "-m", "x.gguf", "--print").stdout.splitlines()
    assert {
        "export CLAUDE_STREAM_IDLE_TIMEOUT_MS=3600000",
        "export API_TIMEOUT_MS=3600000",
    } <= set(shown)


def test_a_chosen_scale_stays(launch: Launch) -> None:
    flags = ("-m", "x.gguf", "--report-context", "120000", "--print")
    done = launch("claude", *flags)
    assert "--spec auto --report-context" not in done.stdout
    assert "export CLAUDE_CODE_MAX_CONTEXT_TOKENS=120000" in done.stdout
    assert "report-context" not in launch("codex", "-m", "x.gguf", "--print").stdout


def test_a_daemon_that_does_not_start(launch: Launch, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.gguf"
    wrong.write_bytes(b"no model")
    done = launch("claude", "-m", str(wrong), "--port", str(free_port()))
    assert done.returncode == 1
    assert "wrong.gguf" in done.stderr
    assert "the server has ended" in done.stderr
    assert not (tmp_path / "seen.json").exists()


def test_without_a_daemon_a_model_must_be_named(launch: Launch) -> None:
    done = launch("claude", "--port", str(free_port()))
    assert done.returncode == 1
    assert "name a model to start one with, -m FILE or -hf USER/MODEL" in done.stderr


def test_another_model_is_not_used_in_silence(server: Live, launch: Launch, tmp_path: Path) -> None:
    done = launch("claude", "-m", "other.gguf", "--port", str(server.client.port), LLAMA_API_KEY=KEY)
    assert done.returncode == 1
    assert "serves echo, and not other.gguf" in done.stderr
    assert not (tmp_path / "seen.json").exists()


def test_a_wrong_key_is_said(server: Live, launch: Launch) -> None:
    done = launch("claude", "--port", str(server.client.port), "--use", "echo", LLAMA_API_KEY="wrong")
    assert done.returncode == 1
    assert "set LLAMA_API_KEY" in done.stderr


# --- who listens -------------------------------------------------------------------------------------------------

_LISTEN = """
import os, socket, sys, time
os.setuid(int(sys.argv[2]))
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
time.sleep(60)
"""


def _listening(port: int, user: int) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", _LISTEN, str(port), str(user)])
    t_end = time.monotonic() + 30
    while not listener.find(port):
        assert process.poll() is None
        assert time.monotonic() < t_end
        time.sleep(0.01)
    return process


def test_a_key_is_not_sent_to_another_program(launch: Launch, tmp_path: Path) -> None:
    port = free_port()
    process = _listening(port, os.getuid())
    try:
        done = launch("claude", "--port", str(port), LLAMA_API_KEY=KEY)
    finally:
        process.kill()
        process.wait()
    assert done.returncode == 1
    assert "which is no llamad" in done.stderr
    assert not (tmp_path / "seen.json").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_key_is_not_sent_to_another_user(launch: Launch) -> None:
    port = free_port()
    process = _listening(port, 65534)
    try:
        done = launch("claude", "--port", str(port), LLAMA_API_KEY=KEY)
    finally:
        process.kill()
        process.wait()
    assert done.returncode == 1
    assert "belongs to another user's program (uid 65534)" in done.stderr


def test_a_key_is_not_sent_to_another_machine(server: Live, launch: Launch) -> None:
    """A llamad of this machine has the port, but the name is that of another one."""
    port = str(server.client.port)
    for host in ("192.0.2.1", "127.0.0.2"):
        done = launch("claude", "--host", host, "--port", port, LLAMA_API_KEY=KEY)
        assert done.returncode == 1
        assert f"listens on port {port} of 127.0.0.1, but not of {host}" in done.stderr


def test_a_name_becomes_the_address_where_the_daemon_listens(
    server: Live, launch: Launch, tmp_path: Path
) -> None:
    """Another user could listen on the name's other addresses."""
    port = str(server.client.port)
    assert launch("claude", "--host", "localhost", "--port", port, LLAMA_API_KEY=KEY).returncode == 7
    assert seen(tmp_path)["environ"]["ANTHROPIC_BASE_URL"] == f"http://127.0.0.1:{port}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_key_is_not_sent_to_who_takes_the_port_during_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon that was started cannot listen then, and may take a while to say so."""
    port = free_port()
    process = _listening(port, 65534)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: process)
    daemon = server_module.Daemon([], {})
    try:
        with pytest.raises(server_module.LaunchError, match="belongs to another user's program"):
            daemon.wait(
                server_module.Server(f"http://127.0.0.1:{port}", KEY), "127.0.0.1", port, io.StringIO()
            )
    finally:
        daemon.stop()


@pytest.mark.parametrize(
    ("words", "address"),
    [
        ("0100007F", "127.0.0.1"),
        ("00000000", "0.0.0.0"),
        ("00000000000000000000000001000000", "::1"),
        ("00000000000000000000000000000000", "::"),
    ],
)
@pytest.mark.skipif(sys.byteorder != "little", reason="the words are those of a little-endian machine")
def test_addresses_of_the_kernel(words: str, address: str) -> None:
    assert listener._text_of(words) == address


def test_other_services_of_claude_code_are_turned_off(server: Live, launch: Launch, tmp_path: Path) -> None:
    """Whether they are set in the environment, or in its own settings, over which --settings wins."""
    others = {"CLAUDE_CODE_USE_VERTEX": "1", "CLAUDE_CODE_USE_BEDROCK": "1", "ANTHROPIC_API_KEY": "x"}
    port = str(server.client.port)
    assert launch("claude", "--port", port, LLAMA_API_KEY=KEY, **others).returncode == 7
    what = seen(tmp_path)
    settings = json.loads(what["arguments"][what["arguments"].index("--settings") + 1])["env"]
    for name in others:
        assert name not in what["environ"]
        assert settings[name] == ""


def test_every_role_of_a_program_has_the_model(server: Live, launch: Launch, tmp_path: Path) -> None:
    """Else one that the user has chosen for a role would win, and it may be another service's."""
    port = str(server.client.port)
    assert launch("opencode", "--port", port, LLAMA_API_KEY=KEY).returncode == 7
    config = json.loads(seen(tmp_path)["environ"]["OPENCODE_CONFIG_CONTENT"])
    assert config["enabled_providers"] == ["llamad"]
    assert {agent["model"] for agent in config["agent"].values()} == {"llamad/echo"}
    assert launch("aider", "--port", port, LLAMA_API_KEY=KEY).returncode == 7
    arguments = seen(tmp_path)["arguments"]
    for role in ("--model", "--weak-model", "--editor-model"):
        assert arguments[arguments.index(role) + 1] == "openai/echo"
    assert launch("qwen", "--port", port, LLAMA_API_KEY=KEY).returncode == 7
    arguments = seen(tmp_path)["arguments"]
    assert arguments[arguments.index("--model") + 1] == "echo"
    assert arguments[arguments.index("--openai-base-url") + 1] == f"http://127.0.0.1:{port}/v1"


def test_a_proxy_is_not_used_for_this_machine(server: Live, launch: Launch, tmp_path: Path) -> None:
    port = str(server.client.port)
    known = {"HTTP_PROXY": "http://192.0.2.1:3128", "NO_PROXY": "intranet", "LLAMA_API_KEY": KEY}
    assert launch("claude", "--port", port, **known).returncode == 7
    environ = seen(tmp_path)["environ"]
    assert environ["NO_PROXY"] == environ["no_proxy"] == "intranet,127.0.0.1"
    # The program's own configuration may name a proxy; Claude Code's wins over variables, but not over --settings.
    assert launch("claude", "--port", port, LLAMA_API_KEY=KEY).returncode == 7
    what = seen(tmp_path)
    settings = json.loads(what["arguments"][what["arguments"].index("--settings") + 1])["env"]
    for given in (what["environ"], settings):
        assert given["NO_PROXY"] == given["no_proxy"] == "127.0.0.1"
    shown = launch("codex", "--port", port, "--print", NO_PROXY="intranet").stdout
    assert "export NO_PROXY=intranet,127.0.0.1\n" in shown
    assert "NO_PROXY" not in launch("codex", "--url", "http://192.0.2.1", "--print").stdout


# --- signals -----------------------------------------------------------------------------------------------------


def _begun(folder: Path, stand_ins: Path, *arguments: str) -> subprocess.Popen[str]:
    """A launch that goes on in the background, with temporary files in a folder of their own."""
    (folder / "temporary").mkdir()
    environ = {
        "PATH": f"{stand_ins}:{os.environ['PATH']}",
        "HOME": str(folder),
        "SEEN": str(folder / "seen.json"),
        "TMPDIR": str(folder / "temporary"),
        "LLAMA_API_KEY": KEY,
    }
    command = [sys.executable, "-m", "llamad", "launch", *arguments]
    return subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True)


def _daemons(port: int) -> list[int]:
    daemons = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            words = listener._command(int(entry.name))
            if str(port) in words and "launch" not in words:
                daemons.append(int(entry.name))
    return daemons


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_during_the_start_ends_the_daemon(
    number: int, scripted_model: str, stand_ins: Path, tmp_path: Path
) -> None:
    port = free_port()
    flags = ("-t", "1", "-m", scripted_model, *SERVED, "--port", str(port))
    process = _begun(tmp_path, stand_ins, "claude", *flags)
    assert process.stderr is not None
    assert "starting llamad" in process.stderr.readline()
    until(lambda: _daemons(port))
    process.send_signal(number)
    _, rest = process.communicate(timeout=60)
    if not (tmp_path / "seen.json").exists():  # the daemon may have been ready sooner
        assert process.returncode == 128 + number, rest
    assert _daemons(port) == []
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_signal_is_handed_on_to_the_program(server: Live, stand_ins: Path, tmp_path: Path) -> None:
    """aider has a temporary file, which goes with it."""
    (stand_ins / "aider").write_text(
        f"#!{sys.executable}\n"
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
        "assert os.path.isfile(os.environ['AIDER_MODEL_METADATA_FILE'])\n"
        "open(os.environ['SEEN'], 'w')\n"
        "time.sleep(300)\n"
    )
    process = _begun(tmp_path, stand_ins, "aider", "--port", str(server.client.port))
    until((tmp_path / "seen.json").exists)
    assert list((tmp_path / "temporary").iterdir()) != []
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 9
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_program_that_a_signal_ends(server: Live, launch: Launch, stand_ins: Path) -> None:
    (stand_ins / "qwen").write_text(f"#!{sys.executable}\nimport os\nos.kill(os.getpid(), 9)\n")
    done = launch("qwen", "--port", str(server.client.port), LLAMA_API_KEY=KEY)
    assert done.returncode == 137


def test_a_running_llamad_is_recognised(server: Live) -> None:
    [one] = listener.find(server.client.port)
    assert one.uid == os.geteuid()
    assert one.pid == server.process.pid
    assert one.is_llamad


def test_a_socket_that_a_supervisor_has_passed_on(
    scripted_model: str, launch: Launch, tmp_path: Path
) -> None:
    """The supervisor has it, too, as systemd has the sockets of a user's unit."""
    with Holder() as holder, holder.start(*SERVED, model=scripted_model) as live:
        [one] = listener.find(holder.port)
        assert (one.pid, one.uid) == (live.process.pid, os.geteuid())
        done = launch("claude", "--port", str(holder.port))
    assert done.returncode == 7, done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_socket_that_was_passed_on_to_another_user() -> None:
    """A service's socket belongs to root, but not the program that answers on it."""
    words = "import os, sys, time\nos.setuid(65534)\nprint(flush=True)\ntime.sleep(60)\n"
    command = [sys.executable, "-c", words, "-m", "llamad"]
    with Holder() as holder:
        fds = [sock.fileno() for sock in holder.sockets]
        with subprocess.Popen(command, pass_fds=fds, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout is not None
                process.stdout.readline()
                [one] = listener.find(holder.port)
                assert (one.pid, one.uid, one.is_llamad) == (process.pid, 65534, True)
                with pytest.raises(server_module.LaunchError, match="belongs to another user's program"):
                    server_module.running("127.0.0.1", holder.port)
            finally:
                process.kill()


@pytest.mark.parametrize(
    ("command", "is_llamad"),
    [
        ("/usr/bin/llamad -m x", True),
        ("/usr/bin/python3 /usr/bin/llamad -m x", True),
        ("python3 -m llamad -m x", True),
        ("python3 -X dev -m llamad", True),
        ("python3 -m http.server llamad", False),
        ("nc -l 8080 llamad", False),
        ("", False),
    ],
)
def test_command_lines(command: str, is_llamad: bool) -> None:
    assert listener.Listener(0, 1, tuple(command.split())).is_llamad == is_llamad


# --- wrong arguments ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "name a program; known are claude, codex, opencode, qwen, aider"),
        (("vim",), "'vim' cannot be launched"),
        (("claude", "--api-key", "x"), "set LLAMA_API_KEY instead of --api-key"),
        (("claude", "--use"), "--use needs a value"),
        (("claude", "--url", "localhost:8080"), "--url must begin with http://"),
        (("claude", "--no-such-flag"), "--no-such-flag"),
        (("claude", "--help"), "use it without `launch`"),
    ],
)
def test_wrong_arguments(arguments: tuple[str, ...], reason: str, launch: Launch) -> None:
    done = launch(*arguments)
    assert done.returncode == 2
    assert reason in done.stderr


def test_a_program_that_is_not_installed(launch: Launch, tmp_path: Path) -> None:
    done = launch("claude", "-m", "x.gguf", path=str(tmp_path))
    assert done.returncode == 127
    assert "npm install -g @anthropic-ai/claude-code" in done.stderr


@pytest.mark.parametrize("host", ["/tmp/llamad.sock", "x.sock"])
def test_sockets_that_programs_cannot_use(host: str, launch: Launch) -> None:
    done = launch("claude", "--host", host)
    assert done.returncode == 1
    assert "programs cannot use the Unix socket" in done.stderr
