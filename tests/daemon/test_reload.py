"""SIGHUP on the real program, under load: each file good and broken, and no stream or connection pays for it."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.fake_daemon import Faked
from support.live_daemon import Live
from support.tls.authority import OPENSSL, Authority

import llamad.reload
from llamad.engine.testing.fake import Fake
from llamad.flags.sources import Sources
from llamad.reload import RELOADABLE

needs_openssl = pytest.mark.skipif(OPENSSL is None, reason="openssl is not installed")


class Files:
    """What the daemon reads; replaced whole, as an operator should."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("keys", "one\ntwo\n")
        self.write("env", "LLAMA_ARG_N_MAX=4\n")
        self.flags = ["--api-key-file", self.path("keys"), "--env-file", self.path("env")]

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def write(self, name: str, text: str) -> None:
        Path(self.path(name + ".new")).write_text(text)
        os.replace(self.path(name + ".new"), self.path(name))


class Reloading:
    """A daemon and its files."""

    def __init__(self, server: Live, files: Files) -> None:
        self.server = server
        self.files = files

    def reload(self) -> str:
        """Send SIGHUP; returns the lines of the log about it."""
        lines = self.server.lines
        n_before = len(lines)
        self.server.signal(signal.SIGHUP)
        wait_until(lambda: any("reload: reloaded" in line for line in lines[n_before:]))
        return "\n".join(lines[n_before:])

    def complete(self, key: str, **options: object) -> int:
        body = {"prompt": "x", "n_predict": 1, **options}
        headers = {"Authorization": f"Bearer {key}"}
        return self.server.client.post("/completion", body, headers=headers).status

    def metric(self, name: str, key: str = "flag") -> float:
        headers = {"Authorization": f"Bearer {key}"}
        text = self.server.client.get("/metrics", headers=headers).body.decode()
        return float(dict(re.findall(r"^([^#\s]+) (\S+)$", text, re.MULTILINE))[name])


def wait_until(condition) -> None:
    end = threading.Event()
    for _ in range(6000):
        if condition():
            return
        end.wait(0.01)
    raise AssertionError("it did not happen")


class Load:
    """Clients that stream one answer after another, and use one connection for short requests, until they are told
    to end. Nothing may go wrong for them."""

    def __init__(self, client, key: str, n_streams: int = 3) -> None:
        self._client = client
        self._headers = {"Authorization": f"Bearer {key}"}
        self._end = threading.Event()
        self.n_done = 0
        self.errors: list[str] = []
        works = [*[self._stream] * n_streams, self._short]
        self._threads = [threading.Thread(target=self._run, args=(work,)) for work in works]

    def _run(self, work) -> None:
        try:
            work()
        except Exception as error:
            self.errors.append(repr(error))

    def _stream(self) -> None:
        while not self._end.is_set():
            body = {"prompt": "load", "n_predict": 64, "stream": True, "ignore_eos": True}
            connection = self._client._connection()
            connection.request("POST", "/completion", json.dumps(body), self._headers)
            text = connection.getresponse().read().decode()
            last = json.loads(text.strip().rpartition("data: ")[2])
            assert last["tokens_predicted"] == 64, text[-500:]
            connection.close()
            self.n_done += 1

    def _short(self) -> None:
        connection = self._client._connection()
        connection.connect()
        sock = connection.sock
        while not self._end.is_set():
            connection.request("GET", "/slots", headers=self._headers)
            response = connection.getresponse()
            assert response.status == 200, response.read()
            response.read()
            assert connection.sock is sock, "the connection was dropped"
            self._end.wait(0.01)
        connection.close()

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        wait_until(lambda: self.n_done > 0 or self.errors)
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(60)
        assert self.errors == []


@pytest.fixture(scope="module")
def plain(tiny, tmp_path_factory):
    files = Files(tmp_path_factory.mktemp("reload"))
    flags = ("-c", "2048", "--metrics", "--slots", "--api-key", "flag", "--log-file", files.path("log"))
    with Live(*flags, *files.flags, model=tiny) as server:
        yield Reloading(server, files)


def test_keys(plain):
    files = plain.files
    n_failures = plain.metric("llamad:reload_failures_total")
    with Load(plain.server.client, "flag") as load:
        assert [plain.complete(key) for key in ("flag", "one", "two", "three")] == [200, 200, 200, 401]
        files.write("keys", "# new\ntwo\nthree\nfour\n")
        said = plain.reload()
        assert "API keys: 2 added, 1 removed, 4 in all" in said
        assert [plain.complete(key) for key in ("flag", "one", "two", "three")] == [200, 401, 200, 200]
        for broken in (lambda: files.write("keys", "# none\n\n"), lambda: os.unlink(files.path("keys"))):
            broken()
            said = plain.reload()
            assert re.search(r"E reload: api-keys: the old one is kept: --api-key-file \S+keys", said)
            assert "reloaded, except for api-keys" in said
            assert [plain.complete(key) for key in ("flag", "one", "two", "three")] == [200, 401, 200, 200]
            assert plain.metric('llamad:reload_ok{item="api-keys"}') == 0
            assert plain.metric('llamad:reload_ok{item="env-file"}') == 1
        assert plain.metric("llamad:reload_failures_total") == n_failures + 2
        files.write("keys", "one\ntwo\n")
        plain.reload()
        assert plain.complete("one") == 200
        assert plain.metric('llamad:reload_ok{item="api-keys"}') == 1
        n_done = load.n_done
        wait_until(lambda: load.n_done > n_done)
    assert not any(word in line for line in plain.server.lines for word in ("three", "four"))


def test_limits(plain):
    files, client = plain.files, plain.server.client
    headers = {"Authorization": "Bearer flag"}
    large = {"prompt": "x", "n_predict": 1, "stop": ["y" * 3000]}
    with Load(client, "flag"):
        assert plain.complete("flag", n=4) == 200
        assert client.post("/completion", large, headers=headers).status == 200
        files.write(
            "env",
            "LLAMA_ARG_N_MAX=2\nLLAMA_ARG_BODY_MAX_BYTES=2K\nLLAMA_ARG_LOG_VERBOSITY=4\n"
            "LLAMA_ARG_N_PREDICT_MAX=70\n",
        )
        said = plain.reload()
        assert "--body-max-bytes 2048, --n-max 2, --n-predict-max 70, --verbosity 4" in said
        assert plain.complete("flag", n_predict=80) == 400
        endless = {"prompt": "x", "ignore_eos": True}
        assert client.post("/completion", endless, headers=headers).json["tokens_predicted"] == 70
        answer = client.post("/completion", {"prompt": "x", "n": 3}, headers=headers)
        assert (answer.status, answer.error["message"]) == (
            400,
            '"n" may be at most 2 on this server (--n-max)',
        )
        answer = client.post("/completion", large, headers=headers)
        assert answer.status == 413
        assert "2048" in answer.error["message"]
        client.get("/health")
        plain.server.wait_line(r'"GET /health" 200')  # a line for debugging
        # Back to the defaults.
        files.write("env", "LLAMA_ARG_CTX_SIZE=4096\nLLAMA_ARG_MODEL=other.gguf\nLLAMA_ARG_THREADS=9\n")
        said = plain.reload()
        assert client.post("/completion", large, headers=headers).status == 200
        assert plain.complete("flag", n=4) == plain.complete("flag", n_predict=80) == 200
        # -c, -m and -t are on the command line; a cache size is not.
        assert "LLAMA_ARG_CTX_SIZE is ignored: -c on the command line wins" in said
        files.write("env", "LLAMA_ARG_CACHE_RAM=77\nLLAMA_ARG_N_MAX=3\n")
        said = plain.reload()
        assert "changes of --cache-ram need a restart" in said
        assert plain.complete("flag", n=4) == 400


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("LLAMA_ARG_N_MAX=many", "env:1: LLAMA_ARG_N_MAX: 'many' is not an integer"),
        ("LLAMA_ARG_N_MAX=8\nLLAMA_ARG_N_PRO", "env:2: expected NAME=value"),
        ("LLAMA_ARG_N_MAX=8\nLLAMA_ARG_SSL_KEY_FILE=x", "TLS needs both --ssl-key-file and --ssl-cert-file"),
    ],
)
def test_a_broken_env_file_changes_nothing(plain, text, words):
    plain.files.write("env", "LLAMA_ARG_N_MAX=4\n")
    plain.reload()
    plain.files.write("env", text)
    assert words in plain.reload()
    assert plain.metric('llamad:reload_ok{item="env-file"}') == 0
    assert [plain.complete("flag", n=n) for n in (4, 5)] == [200, 400]


def test_the_log_file_is_opened_again(plain):
    path, old = plain.files.path("log"), plain.files.path("log.1")
    os.rename(path, old)
    plain.reload()
    assert plain.complete("flag") == 200
    wait_until(lambda: "POST /completion" in Path(path).read_text())
    n_old = len(Path(old).read_text())
    plain.complete("flag")
    assert len(Path(old).read_text()) == n_old
    assert plain.metric('llamad:reload_ok{item="log-file"}') == 1


def test_signals_in_a_row_are_one_more_reload(plain):
    n_before = plain.metric("llamad:reloads_total")
    for _ in range(50):
        plain.server.signal(signal.SIGHUP)
    plain.reload()
    n_reloads = plain.metric("llamad:reloads_total") - n_before
    assert 1 <= n_reloads < 50
    assert plain.complete("flag") == 200


# TLS


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    made = Authority(tmp_path_factory.mktemp("authority"))
    made.issue("first")
    made.issue("second", 20)
    made.issue("expired", -2, since_days=-9)
    return made


@pytest.fixture(scope="module")
def secure(tiny, authority, tmp_path_factory):
    files = Files(tmp_path_factory.mktemp("secure"))
    install(files, authority, "first")
    tls = ("--ssl-cert-file", files.path("cert.pem"), "--ssl-key-file", files.path("key.pem"))
    flags = ("-c", "2048", "--metrics", "--slots", "--api-key", "flag")
    with Live(*flags, *tls, *files.flags, model=tiny, trust=authority.root) as server:
        yield Reloading(server, files)


def install(files: Files, authority: Authority, certificate: str, key: str = "") -> None:
    files.write("cert.pem", (authority.folder / f"{certificate}.pem").read_text())
    files.write("key.pem", authority.key(key or certificate).read_text())


def subject(server: Live) -> str:
    """Whose certificate a new connection is shown."""
    assert OPENSSL is not None
    where = f"{server.client.host}:{server.client.port}"
    done = subprocess.run(
        [OPENSSL, "s_client", "-connect", where], input=b"", capture_output=True, timeout=60
    )
    name = re.search(rb"subject=CN ?= ?(\S+)", done.stdout)
    assert name is not None, done.stderr
    return name[1].decode()


@needs_openssl
def test_certificates(secure, authority):
    server, files = secure.server, secure.files
    expiry = "llamad:certificate_expiry_timestamp_seconds"
    with Load(server.client, "flag"):
        assert subject(server) == "first"
        first = secure.metric(expiry)
        assert "certificate" not in secure.reload()  # the same
        install(files, authority, "second")
        said = secure.reload()
        assert "new certificate, valid until" in said
        assert re.search(r"W reload: TLS: the certificate expires on .*, in (19|20) days", said)
        assert subject(server) == "second"
        assert 0 < first - secure.metric(expiry) < 360 * 86400
        half = (authority.folder / "first.pem").read_text()[:300]
        for broken, words in (
            (lambda: install(files, authority, "first", "second"), "is not the key of the certificate"),
            (lambda: files.write("cert.pem", half), "cert.pem ends within a certificate"),
            (lambda: os.unlink(files.path("cert.pem")), "cert.pem: No such file or directory"),
        ):
            broken()
            said = secure.reload()
            assert re.search(rf"E reload: certificate: the old one is kept: .*{words}", said), said
            assert secure.metric('llamad:reload_ok{item="certificate"}') == 0
            assert subject(server) == "second"
        install(files, authority, "first")
        secure.reload()
        assert secure.metric('llamad:reload_ok{item="certificate"}') == 1
        assert subject(server) == "first"
        assert secure.metric(expiry) == first


@needs_openssl
def test_an_expired_certificate_is_served_with_an_error(secure, authority):
    install(secure.files, authority, "expired")
    assert re.search(r"E reload: TLS: the certificate expired on .*: clients will refuse it", secure.reload())
    assert subject(secure.server) == "expired"
    install(secure.files, authority, "first")
    secure.reload()


@needs_openssl
def test_check_says_what_a_start_would(tiny, authority, tmp_path):
    env = tmp_path / "env"
    pair = [authority.folder / "expired.pem", authority.key("expired")]
    env.write_text(
        "LLAMA_ARG_SSL_CERT_FILE={}\nLLAMA_ARG_SSL_KEY_FILE={}\nLLAMA_ARG_PORT=4321\n".format(*pair)
    )
    command = [sys.executable, "-m", "llamad", "check", "-m", tiny, "-c", "256", "--env-file", str(env)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "https://127.0.0.1:4321" in done.stdout
    assert re.search(r"warning +TLS: the certificate expired on", done.stdout)
    env.write_text("LLAMA_ARG_PORT=x\n")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, f"llamad: {env}:1: LLAMA_ARG_PORT: 'x' is not an integer\n")


# systemd


def test_systemd_is_told(tiny, tmp_path):
    files = Files(tmp_path)
    told: list[str] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(files.path("notify"))
        receiver.settimeout(60)

        def wait_for(word: str) -> str:
            while True:
                told.append(receiver.recv(4096).decode())
                if word in told[-1]:
                    return told[-1]

        env = {"NOTIFY_SOCKET": files.path("notify")}
        with Live("-c", "512", *files.flags, model=tiny, env=env) as server:
            wait_for("READY=1")
            files.write("keys", "")
            server.signal(signal.SIGHUP)
            assert re.search(r"^MONOTONIC_USEC=\d+$", wait_for("RELOADING=1"), re.MULTILINE)
            assert re.search(r"STATUS=.*reload failed: api-keys: .*has no keys", wait_for("READY=1"))
            files.write("keys", "one")
            server.signal(signal.SIGHUP)
            wait_for("RELOADING=1")
            assert "reload failed" not in wait_for("READY=1")


# What no signal of a test can bring about


def test_a_removed_keys_stream_goes_on(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("one\ntwo\n")
    fake = Fake()
    with Faked(fake, "--api-key-file", str(keys)) as server:
        one = {"Authorization": "Bearer one"}
        connection = http.client.HTTPConnection(server.client.host, server.client.port, timeout=60)
        fake.block(True)
        body = {"prompt": "x", "n_predict": 100, "stream": True, "ignore_eos": True}
        connection.request("POST", "/completion", json.dumps(body), one)
        server.until(lambda: fake.is_waiting)
        keys.write_text("two\n")
        server.loop.call_soon_threadsafe(server.daemon.reload.request)
        server.until(lambda: server.client.get("/slots", headers=one).status == 401)
        fake.block(False)
        text = connection.getresponse().read().decode()
        assert json.loads(text.strip().rpartition("data: ")[2])["tokens_predicted"] == 100
        connection.request("GET", "/slots", headers=one)
        assert connection.getresponse().status == 401
        connection.close()


def test_a_file_that_cannot_be_read_in_time_is_given_up(tmp_path, monkeypatch, caplog):
    """A disk that hangs; here a pipe that nobody writes to."""
    caplog.set_level("INFO")
    monkeypatch.setattr(llamad.reload, "READ_SECONDS", 0.2)
    keys = tmp_path / "keys"
    keys.write_text("k\n")
    with Faked(Fake(), "--api-key-file", str(keys)) as server:
        server.client.headers = {"Authorization": "Bearer k"}
        keys.unlink()
        os.mkfifo(keys)
        server.loop.call_soon_threadsafe(server.daemon.reload.request)
        server.until(
            lambda: "api-keys: the old one is kept: it could not be read within 0.2 s" in caplog.text
        )
        server.until(lambda: not server.daemon.reload.is_running)
        assert server.client.complete("x", n_predict=1)["content"]
        with open(keys, "w"):  # lets the thread go
            pass


def test_first_keys_close_an_open_server(tmp_path):
    env = tmp_path / "env"
    env.write_text("")
    sources = Sources(["-m", "fake.gguf", "--port", "0", "-np", "1", "--env-file", str(env)], {})
    sources.read()
    with Faked(Fake(), "--env-file", str(env), sources=sources) as server:
        origin = {"Origin": "https://example.com"}
        assert server.client.post("/tokenize", {"content": "x"}).status == 200
        assert server.client.post("/tokenize", {"content": "x"}, headers=origin).status == 403
        env.write_text("LLAMA_API_KEY=k\n")
        server.loop.call_soon_threadsafe(server.daemon.reload.request)
        server.until(lambda: server.client.post("/tokenize", {"content": "x"}).status == 401)
        key = {"Authorization": "Bearer k"}
        assert server.client.post("/tokenize", {"content": "x"}, headers=key).status == 200
        assert server.client.post("/tokenize", {"content": "x"}, headers={**key, **origin}).status == 200
        env.write_text("")
        server.loop.call_soon_threadsafe(server.daemon.reload.request)
        server.until(lambda: server.daemon.service.metrics.reloads.n_total == 2)
        server.until(lambda: not server.daemon.reload.is_running)
        assert server.client.post("/tokenize", {"content": "x"}).status == 401
        assert "the server would be open to all" in server.daemon.service.metrics.reloads.status


def test_what_is_reloadable():
    """The page of flags says so; what an engine holds is not."""
    assert {"queue_max", "connections_max", "request_timeout", "n_predict_max", "api_keys"} <= RELOADABLE
    assert not RELOADABLE & {"n_ctx", "n_parallel", "model", "port", "hosts", "log_file", "cache_ram"}
