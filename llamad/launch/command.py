"""`llamad launch PROGRAM`: runs a coding agent with a model of this machine. main() returns the exit status.

Runs on the main thread. It finds a daemon or starts one, sets variables and arguments for the program, and waits until
the program ends. It never changes the user's configuration, and never puts a key into an argument list.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.parse
from collections.abc import Callable, Mapping, Sequence

import msgspec

from llamad.api.service.auth import key_texts
from llamad.flags.parse import MODEL_SOURCES, FlagError, Parsed
from llamad.flags.sources import Sources
from llamad.flags.types.flag import Action
from llamad.launch.programs import PROGRAMS
from llamad.launch.programs.program import NO_KEY, Program, Served, Setup
from llamad.launch.server import Daemon, LaunchError, Server, running

KEY_VARIABLE = "LLAMA_API_KEY"
NOT_FOUND = 127  # as a shell says it
_SIGNALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
# The settings with which a user has chosen how to draft.
_DRAFTS = frozenset({"spec", "spec_types", "spec_fixed", "model_draft", "hf_repo_draft"})

USAGE = f"""usage: llamad launch {"|".join(PROGRAMS)} [flags] [-- ARGUMENTS]

Runs a coding agent with a model of this machine. It uses the llamad that runs at --host and --port, or starts one with
the flags, which are those of llamad, and with --spec auto; that one ends with the program. ARGUMENTS go to the program.

  --use NAME    which of several models to use
  --url URL     use this server, whoever runs it
  --print       only show what would be set

A key comes from {KEY_VARIABLE} or --api-key-file.

  llamad launch claude -m model.gguf
  llamad launch codex -hf ggml-org/Qwen3-Coder-30B-A3B-Instruct-Q8_0-GGUF -- exec "explain this repository"
"""


class StoppedError(Exception):
    """A signal has ended the launch before its program ran."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Wish(msgspec.Struct, frozen=True):
    """What the command line asks for."""

    program: Program
    arguments: tuple[str, ...]  # the program's
    flags: tuple[str, ...]  # llamad's
    use: str
    url: str
    prints: bool


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Return the exit status of the program; 1 if it cannot be launched, 2 for wrong arguments."""
    if arguments and arguments[0] in ("-h", "--help"):
        print(USAGE, end="")
        return 0
    try:
        wish = read(arguments)
        parsed = Sources(wish.flags, environ).read()
        _check(wish, parsed)
        return show(wish, parsed, environ) if wish.prints else launch(wish, parsed, environ)
    except FlagError as error:
        return _refused(str(error), 2)
    except (LaunchError, ValueError, OSError) as error:
        return _refused(str(error), 1)
    except StoppedError as error:
        return _refused("stopped", 128 + error.number)


def _refused(reason: str, status: int) -> int:
    print(f"llamad: {reason}", file=sys.stderr)
    return status


# --- the command line -------------------------------------------------------------------------------------------


def read(arguments: Sequence[str]) -> Wish:
    """Parse the arguments. Raises FlagError."""
    words = list(arguments)
    if not words or words[0] not in PROGRAMS:
        named = f"'{words[0]}' cannot be launched" if words else "name a program"
        raise FlagError(f"{named}; known are {', '.join(PROGRAMS)}. `llamad launch --help` shows more")
    program = PROGRAMS[words.pop(0)]
    end = words.index("--") if "--" in words else len(words)
    rest = words[end + 1 :]
    words = words[:end]
    use, url = _take(words, "--use"), _take(words, "--url")
    prints = "--print" in words
    return Wish(program, tuple(rest), tuple(one for one in words if one != "--print"), use, url, prints)


def _take(words: list[str], name: str) -> str:
    """Remove an own flag and its value from the words; return the value, or an empty text. Raises FlagError."""
    for i, word in enumerate(words):
        if word.startswith(f"{name}="):
            del words[i]
            return word.removeprefix(f"{name}=")
        if word == name:
            if i + 1 == len(words):
                raise FlagError(f"{name} needs a value")
            value = words[i + 1]
            del words[i : i + 2]
            return value
    return ""


def _check(wish: Wish, parsed: Parsed) -> None:
    if parsed.action is not Action.RUN:
        raise FlagError("this flag prints something instead of serving; use it without `launch`")
    if any(one.flag.dest == "api_keys" for one in parsed.layers[-1]):
        raise FlagError(
            f"other users can see arguments: set {KEY_VARIABLE} instead of --api-key, or use --api-key-file"
        )
    if wish.url and not wish.url.startswith(("http://", "https://")):
        raise FlagError("--url must begin with http:// or https://")


def _host(parsed: Parsed) -> str:
    """Return the host at which programs can reach a server with these flags. Raises LaunchError if they cannot."""
    daemon = parsed.settings.daemon
    host = daemon.hosts[0]
    if host.startswith("/") or host.endswith(".sock"):
        raise LaunchError(f"programs cannot use the Unix socket {host}: name an address with --host")
    if daemon.port == 0:
        raise LaunchError("--port 0 is any free port: name one")
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def _url(wish: Wish, parsed: Parsed, address: str = "") -> str:
    """Return the URL of the server. `address` is where it listens: a name could lead programs to another one, where
    somebody else listens. Raises LaunchError if programs cannot reach it."""
    if wish.url:
        return wish.url.rstrip("/").removesuffix("/v1")
    daemon, host = parsed.settings.daemon, _host(parsed)
    if daemon.ssl_cert_file:
        scheme = "https"  # its certificate is for the name, and proves who it is
    else:
        scheme, host = "http", address or host
    return f"{scheme}://[{host}]:{daemon.port}" if ":" in host else f"{scheme}://{host}:{daemon.port}"


def _names(wish: Wish, parsed: Parsed) -> list[str]:
    """Return the names with which the user has chosen a model; none if any model will do."""
    if wish.use:
        return [wish.use]
    if parsed.given.isdisjoint(MODEL_SOURCES):
        return []
    model = parsed.settings.model
    return [name for name in (model.alias, model.hf_repo or "", model.model) if name]


def _start_flags(wish: Wish, parsed: Parsed) -> list[str]:
    flags = [*wish.flags, *([] if parsed.given & _DRAFTS else ["--spec", "auto"])]
    if wish.program.report_context and "report_context" not in parsed.given:
        flags += ["--report-context", str(wish.program.report_context)]
    return flags


# --- showing and launching ---------------------------------------------------------------------------------------


def show(wish: Wish, parsed: Parsed, environ: Mapping[str, str]) -> int:
    """Print what would be set, as lines of a shell. It needs neither server nor program."""
    url, names = _url(wish, parsed), _names(wish, parsed)
    n_ctx = parsed.settings.model.n_ctx if "n_ctx" in parsed.given else 0
    n_reported = parsed.settings.model.report_context or (0 if wish.url else wish.program.report_context)
    model = os.path.basename(names[0]) if names else "MODEL"
    served = Served(url, model, n_ctx, n_reported, _no_proxy(wish, url, environ))
    setup = wish.program.setup(served)
    if not wish.url:
        command = shlex.join(["llamad", *_start_flags(wish, parsed)])
        print(f"# Unless a llamad runs at {url}: {command}")
    for name in setup.unset:
        print(f"unset {name}")
    for name, value in (setup.environ | served.proxy_variables).items():
        print(f"export {name}={shlex.quote(value)}")
    for name in setup.keys:
        print(f'export {name}="${{{KEY_VARIABLE}:-{NO_KEY}}}"')
    for name, text in setup.files.items():
        print(f"export {name}=$(mktemp)\nprintf '%s' {shlex.quote(text)} > \"${name}\"")
    print(shlex.join([wish.program.name, *setup.arguments, *wish.arguments]))
    return 0


def launch(wish: Wish, parsed: Parsed, environ: Mapping[str, str]) -> int:
    """Run the program and return its exit status. Raises LaunchError, FlagError, ValueError, OSError."""
    path = shutil.which(wish.program.name, path=environ.get("PATH"))
    if path is None:
        return _refused(f"{wish.program.name} is not installed: {wish.program.install}", NOT_FOUND)
    keys = key_texts(parsed.settings.daemon)
    key = keys[0] if keys else ""
    _on_signals(_stop)
    if wish.url:
        served = Server(_url(wish, parsed), key).served(_names(wish, parsed))
        return _run(path, wish, served, key, environ)
    url, host, port = _url(wish, parsed), _host(parsed), parsed.settings.daemon.port
    address = running(host, port)
    if address:
        served = Server(_url(wish, parsed, address), key).served(_names(wish, parsed))
        return _run(path, wish, served, key, environ)
    if not parsed.given & {*MODEL_SOURCES, "models_dir", "models_preset"}:
        raise LaunchError(
            f"no llamad runs at {url}: name a model to start one with, -m FILE or -hf USER/MODEL"
        )
    flags = _start_flags(wish, parsed)
    print(f"llamad: starting {shlex.join(['llamad', *flags])}", file=sys.stderr)
    early: list[int] = []
    _on_signals(
        lambda number, _: early.append(number)
    )  # else the daemon could be there before it has an owner
    daemon = Daemon(flags, environ)
    try:
        _on_signals(_stop)
        if early:
            raise StoppedError(early[0])
        daemon.wait(Server(url, key), host, port, sys.stderr)
        server = Server(_url(wish, parsed, running(host, port)), key)
        return _run(path, wish, server.served([wish.use] if wish.use else []), key, environ)
    finally:
        _on_signals(lambda *_: None)
        daemon.stop()


def _on_signals(handler: Callable[[int, object], object]) -> None:
    for number in _SIGNALS:
        signal.signal(number, handler)


def _stop(number: int, _: object) -> None:
    """End the launch by an exception, so that a daemon that was started and temporary files go."""
    raise StoppedError(number)


def _run(path: str, wish: Wish, served: Served, key: str, environ: Mapping[str, str]) -> int:
    served = msgspec.structs.replace(served, no_proxy=_no_proxy(wish, served.url, environ))
    setup = wish.program.setup(served)
    n_ctx = f", {served.n_ctx} tokens of context" if served.n_ctx else ""
    print(f"llamad: {wish.program.name} uses {served.model} at {served.url}{n_ctx}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="llamad-launch-") as folder:
        variables = _variables(setup, key or NO_KEY, folder, environ) | served.proxy_variables
        return _wait([path, *setup.arguments, *wish.arguments], variables)


def _variables(setup: Setup, key: str, folder: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the program, and write its files into the folder."""
    variables = {name: value for name, value in environ.items() if name not in setup.unset}
    variables |= setup.environ | dict.fromkeys(setup.keys, key)
    for i, (name, text) in enumerate(setup.files.items()):
        variables[name] = os.path.join(folder, f"{i}.json")
        with open(variables[name], "x", encoding="utf-8") as file:
            file.write(text)
    return variables


def _no_proxy(wish: Wish, url: str, environ: Mapping[str, str]) -> str:
    """Return the hosts that the program must reach without a proxy, or an empty text if the user has named the server.
    A proxy must not get the key, and does not know this machine's own addresses. It may be set in the program's own
    configuration, too, so this does not ask whether there is one."""
    if wish.url:
        return ""
    known = environ.get("no_proxy") or environ.get("NO_PROXY", "")
    return ",".join(part for part in (known, urllib.parse.urlsplit(url).hostname) if part)


def _wait(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the command in this terminal and return its status. The terminal sends its signals to the command, too, and
    others are handed on."""
    early: list[int] = []
    process: subprocess.Popen[bytes] | None = None

    def hand_on(number: int, _: object) -> None:
        if process is None:
            early.append(number)
        elif number in (signal.SIGTERM, signal.SIGHUP):
            process.send_signal(number)

    _on_signals(hand_on)  # not ignored, because the command would inherit that
    process = subprocess.Popen(command, env=dict(environ))
    for received in early:
        process.send_signal(received)
    status = process.wait()
    return 128 - status if status < 0 else status
