"""The server that a program is to use: asks it what it serves, and starts one if none is there."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from llamad.launch import listener
from llamad.launch.programs.program import Served

REQUEST_SECONDS = 30.0
# A router loads the model before it says how large its context is.
LOAD_SECONDS = 600.0
POLL_SECONDS = 0.1
STOP_SECONDS = 15.0


class LaunchError(Exception):
    """The program cannot be launched. str() says why and what to do."""


class Server:
    """A llamad, or another server with its endpoints. `key` is the API key, or empty."""

    def __init__(self, url: str, key: str) -> None:
        self.url = url.rstrip("/")
        self._key = key

    def served(self, names: Sequence[str]) -> Served:
        """Return the model with one of these names, or the only model. Raises LaunchError, also for a wrong key."""
        self._check_key()
        models = self._get("/v1/models").get("data", [])
        ids = [str(one["id"]) for one in models]
        if names:
            chosen = [one for one in models if not _names_of(one).isdisjoint(map(_base, names))]
        else:
            chosen = models
        if len(chosen) == 1:
            model = chosen[0]["id"]
            n_ctx = self._context(chosen[0])
            return Served(self.url, model, n_ctx, self._reported(model))
        listed = ", ".join(ids) or "no models"
        if names and not chosen:
            raise LaunchError(f"{self.url} serves {listed}, and not {names[0]}: choose with --use NAME")
        raise LaunchError(f"{self.url} serves {listed}: choose one with --use NAME")

    def _check_key(self) -> None:
        """Ask for something that needs a key, as the list of models does not."""
        try:
            self._get("/v1/loads")
        except _Status as error:
            if error.status == http.HTTPStatus.UNAUTHORIZED:
                raise

    def _context(self, model: Mapping[str, Any]) -> int:
        """Return the tokens that one conversation can have, or 0. A router loads the model for that."""
        n_ctx = (model.get("meta") or {}).get("n_ctx")
        if n_ctx:
            return int(n_ctx)
        query = urllib.parse.urlencode({"model": model["id"]})
        settings = self._get(f"/props?{query}", LOAD_SECONDS).get("default_generation_settings", {})
        return int(settings.get("n_ctx", 0))

    def _reported(self, model: str) -> int:
        """Return the context in whose scale Anthropic's dialect counts, or 0. Other servers do not tell it."""
        path = f"/v1/models/{urllib.parse.quote(model)}"
        try:
            shown = self._get(path, headers={"anthropic-version": "2023-06-01"})
        except _Status:
            return 0
        return int(shown.get("max_input_tokens") or 0)

    def state(self) -> str:
        """Return "" if the server is ready, or what it says about its state. Raises LaunchError if it has failed."""
        try:
            self._get("/health")
        except _Status as error:
            if error.status != http.HTTPStatus.SERVICE_UNAVAILABLE:
                raise
            return error.message
        return ""

    def _get(
        self, path: str, seconds: float = REQUEST_SECONDS, headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Return the JSON of an answer. Raises LaunchError."""
        key = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        request = urllib.request.Request(self.url + path, headers={**key, **(headers or {})})
        # Proxies are for other machines, and the program asks this server itself.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=seconds) as response:
                body = json.loads(response.read())
        except urllib.error.HTTPError as error:
            raise _refusal(self.url, error) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise LaunchError(f"{self.url}{path} does not answer as a llamad does: {error}") from None
        if not isinstance(body, dict):
            raise LaunchError(f"{self.url}{path} does not answer as a llamad does")
        return body


class _Status(LaunchError):
    def __init__(self, text: str, status: int, message: str) -> None:
        super().__init__(text)
        self.status = status
        self.message = message


def _refusal(url: str, error: urllib.error.HTTPError) -> _Status:
    try:
        message = str(json.loads(error.read())["error"]["message"])
    except (OSError, ValueError, KeyError, TypeError):
        message = error.reason
    if error.code == http.HTTPStatus.UNAUTHORIZED:
        message += ": set LLAMA_API_KEY, or name the file of keys with --api-key-file"
    return _Status(f"{url}: {message}", error.code, message)


def _names_of(model: Mapping[str, Any]) -> set[str]:
    return {_base(str(name)) for name in (model["id"], *(model.get("aliases") or ()))}


def _base(name: str) -> str:
    return os.path.basename(name).removesuffix(".gguf")


def running(host: str, port: int) -> str:
    """Return the address at which a llamad of this user listens on the port, or an empty text if nobody does. Raises
    LaunchError if somebody else does, whatever the address."""
    listeners = listener.find(port)
    for one in listeners:
        if one.uid != os.geteuid():
            raise LaunchError(
                f"port {port} belongs to another user's program (uid {one.uid}); if you trust it, name it with"
                f" --url http://127.0.0.1:{port}, or start a server of your own with another --port"
            )
        if not one.is_llamad:
            name = os.path.basename(one.command[0]) if one.command else "an unknown program"
            raise LaunchError(
                f"port {port} is taken by {name} (process {one.pid}), which is no llamad: name another --port"
            )
    address = listener.address_of(host, listeners)
    if listeners and not address:
        where = " and ".join(sorted({one.address for one in listeners}))
        raise LaunchError(
            f"a llamad listens on port {port} of {where}, but not of {host}: name its address with --host, or another"
            " machine's with --url"
        )
    return address


class Daemon:
    """A daemon that was started for a program, and ends with it. Its log is in a file."""

    def __init__(self, arguments: Sequence[str], environ: Mapping[str, str]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="llamad-launch-")
        self.log_path = os.path.join(self._folder.name, "llamad.log")
        with open(self.log_path, "wb") as log:
            # In a session of its own: ^C in the terminal is for the program.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "llamad", *arguments],
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait(self, server: Server, host: str, port: int, shown: TextIO) -> None:
        """Return when the server is ready; show its log until then. Raises LaunchError, also if somebody else has taken
        its port meanwhile."""
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            while True:
                shown.write(log.read())
                shown.flush()
                if self._process.poll() is not None:
                    shown.write(log.read())
                    raise LaunchError("the server has ended; its last lines say why")
                if running(host, port) and not server.state():
                    return
                time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """End the daemon, at once if it does not end in time."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        with contextlib.suppress(OSError):
            self._folder.cleanup()
