"""Owns the command lines that people paste: of llama-server's documents, of tutorials, model cards, editors' plugins.

Each starts the real program, over small models under the names that it has, and serves a request.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import shlex
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.live_daemon import WAIT_SECONDS, model_path
from support.models import bert_reference, bert_weights
from support.models.tiny_model import N_EMBD
from support.models.tiny_projectors import write_projector

from llamad.flags.parse import FlagError, parse

CERTIFICATE = Path(__file__).parents[1] / "http" / "tls_for_tests_only.pem"

# What follows "llama-server" or the image's name, and the number of warnings.
LINES = [
    ("-m models/7B/ggml-model.gguf -c 2048", 0),
    ("-m models/7B/ggml-model.gguf -c 512 --host 0.0.0.0 --port 8080 --n-gpu-layers 99", 0),
    ("-m model.gguf --port 8080", 0),
    ("-m model.gguf -c 16384 -np 4", 0),
    ("-m model.gguf --embedding --pooling cls -ub 8192", 0),
    ("-m reranker.gguf --reranking", 0),
    ("-m model.gguf --grammar-file grammar.gbnf", 0),
    ("-m model.gguf --grammar-file grammars/json.gbnf", 0),
    ("-m model.gguf --slots --metrics --props", 0),
    ("-m model.gguf --slot-save-path /tmp --slot-prompt-similarity 0.3", 0),
    ("-m model.gguf --jinja", 0),
    ("-m model.gguf --jinja --chat-template-file templates/tool_use.jinja", 0),
    ("-m model.gguf --chat-template chatml --no-jinja", 0),
    ("""-m model.gguf --jinja --chat-template-kwargs '{"enable_thinking":false}'""", 0),
    ("-m model.gguf --reasoning-format deepseek --reasoning-budget 0", 0),
    ("""-m model.gguf --ui-config '{"pasteLongTextToFileLen": 0, "renderUserContentAsMarkdown": true}'""", 1),
    ("-m model.gguf --webui --webui-config-file ui.json", 1),
    ("-m model.gguf --no-webui --api-key secret --ssl-key-file k.pem --ssl-cert-file c.pem", 0),
    # Editors' plugins
    ("-m q.gguf --port 8012 -ngl 99 -fa -ub 1024 -b 1024 --ctx-size 0 --cache-reuse 256", 0),
    ("-m q.gguf --port 8012 -ngl 99 -fa on -ub 512 -b 512 --ctx-size 0 --cache-reuse 256 -np 2", 0),
    # Model cards
    (
        "--model r.gguf --threads 32 --ctx-size 16384 --n-gpu-layers 99 --seed 3407 --prio 2 --temp 0.6 --min-p 0.01",
        0,
    ),
    ("-m moe.gguf -ngl 99 -ot .ffn_.*_exps.=CPU -fa on -ctk q8_0 -ctv q8_0 --top-p 0.95", 0),
    ("-m moe.gguf --n-cpu-moe 36 --n-gpu-layers 999 -c 0 -fa on --jinja --reasoning-format none", 0),
    ("-m oss.gguf -c 0 -fa on --jinja -ub 2048 -b 2048", 0),
    ("-m q.gguf --rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 32768 -c 131072", 0),
    ("-m q.gguf --temp 0.7 --top-k 20 --top-p 0.8 --min-p 0 --presence-penalty 1.5 --no-context-shift", 0),
    ("-m g.gguf --swa-full --kv-unified --ctx-checkpoints 32", 0),
    ("-m m.gguf --samplers top_k;top_p;temperature --repeat-penalty 1.1 --repeat-last-n 256", 0),
    # Old tutorials
    ("-m models/7B/ggml-model.gguf -c 4096 -t 8 -tb 8 --mlock --no-mmap --numa", 0),
    ("-m m.gguf -cb -np 8 -c 32768 --log-format text --log-disable --metrics", 0),
    ("-m m.gguf -ngl 33 -sm none -mg 0 -ts 3,1 --threads-http 8", 1),
    ("-m m.gguf -gan 4 -gaw 2048 -c 8192 -n 512", 0),
    ("-m wide.gguf -dt 0.1 --cache-type-k q4_0 -fa", 1),
    ("-m m.gguf -i --color -r User: -p hello", 4),
    ("-m m.gguf --n_gpu_layers 35 --ctx_size 2048 --host 0.0.0.0", 0),
    # Newer ones
    ("-m m.gguf --host 127.0.0.1,::1 --port 8080", 0),
    ("-m m.gguf --host /run/llama.sock --api-prefix /llm", 0),
    ("-m m.gguf -a gpt-4o,gpt-4o-mini --tags chat,small --cors-origins localhost", 0),
    ("-m m.gguf --fit on --fit-target 1024", 0),
    ("-m m.gguf --spec-draft-n-max 3 --spec-draft-p-min 0.75", 2),
    ("-m m.gguf -md draft.gguf --draft-max 16 --draft-min 1 --draft-p-min 0.75 -ngld 99 -cd 4096", 1),
    ("-m wide.gguf -md moe.gguf -devd none -ctkd q8_0 -ctvd q8_0 -td 1 -tbd 1 --spec-draft-n-max 8", 0),
    ("-m m.gguf --spec-type ngram-mod --spec-ngram-size-n 24 --draft-min 48 --draft-max 64", 2),
    ("-m m.gguf --spec-type ngram-map-k4v --spec-ngram-map-k4v-size-n 8 --spec-ngram-map-k4v-min-hits 2", 0),
    ("-m m.gguf --spec-default", 0),
    ("-m m.gguf --sleep-idle-seconds 600 --models-max 2", 1),
    ("-m m.gguf --load-mode mmap+mlock --no-repack --poll 50 --prio 0", 0),
    ("-m m.gguf --load-mode none --numa distribute --reuse-port --context-shift -n 64", 0),
    ("-m m.gguf --log-colors off --log-prefix --log-timestamps -lv 4 --log-jsonl", 0),
    ("-m m.gguf --offline --no-mmproj --no-perf", 0),
    ("-m m.gguf --mmproj mmproj.gguf --image-max-tokens 1024 --no-mmproj-offload", 0),
]

VARIABLES = {
    "LLAMA_ARG_MODEL": "/models/m.gguf",
    "LLAMA_ARG_CTX_SIZE": "4096",
    "LLAMA_ARG_N_PARALLEL": "2",
    "LLAMA_ARG_ENDPOINT_METRICS": "1",
    "LLAMA_ARG_PORT": "8080",
    "LLAMA_ARG_HOST": "0.0.0.0",
    "LLAMA_ARG_UI": "1",
    "LLAMA_ARG_NO_MMAP": "1",
    "LLAMA_ARG_FLASH_ATTN": "on",
}

# What a line demands that is not there yet.
DEMANDS = [
    ("-dr gemma3", "models of Docker Hub"),
    ("-m m.gguf --mtp", "drafts from heads in the model"),
    ("-m m.gguf --mcp-servers-config mcp.json", "server-side tools"),
]


@pytest.mark.parametrize(("line", "n_warnings"), LINES, ids=[line for line, _ in LINES])
def test_it_is_understood(line: str, n_warnings: int) -> None:
    warnings = parse(shlex.split(line), {}).warnings
    assert len(warnings) == n_warnings, warnings


def test_variables_of_a_container_are_understood() -> None:
    result = parse([], VARIABLES)
    assert (result.settings.model.model, result.settings.model.n_parallel, result.settings.model.mmap) == (
        "/models/m.gguf",
        2,
        False,
    )
    assert result.warnings == []


@pytest.mark.parametrize(("line", "feature"), DEMANDS, ids=[line for line, _ in DEMANDS])
def test_it_stops_with_what_is_missing(line: str, feature: str) -> None:
    with pytest.raises(FlagError, match=f"needs {feature}.* leave it out$"):
        parse(shlex.split(line), {})


@pytest.fixture(scope="module")
def place(tiny: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which people paste: with every file that a line names."""
    folder = tmp_path_factory.mktemp("pasted")
    for name in ("models/7B", "templates", "grammars"):
        (folder / name).mkdir(parents=True)
    for name in ("models/7B/ggml-model", "model", "q", "r", "oss", "g", "m", "draft"):
        (folder / f"{name}.gguf").symlink_to(tiny)
    for name in ("moe", "wide"):
        (folder / f"{name}.gguf").symlink_to(model_path())  # heads wide enough for a quantized cache
    (folder / "reranker.gguf").symlink_to(bert_reference.cached_gguf(bert_weights.reranker()))
    write_projector(folder / "mmproj.gguf", "janus_pro", N_EMBD)
    for name in ("grammar.gbnf", "grammars/json.gbnf"):
        (folder / name).write_text('root ::= "yes" | "no"')
    (folder / "templates/tool_use.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    (folder / "ui.json").write_text("{}")
    for name in ("k.pem", "c.pem"):
        (folder / name).symlink_to(CERTIFICATE)
    return folder


def has_ipv6() -> bool:
    with contextlib.suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        return True
    return False


class Pasted:
    """The real program, started with a line as it stands, but for the port and the place of sockets."""

    def __init__(self, line: str, place: Path) -> None:
        self.words = shlex.split(line.replace("/run/", f"{place}/"))
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.log = place / f"{self.port}.log"
        command = [sys.executable, "-m", "llamad", *self.words, "--port", str(self.port)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, cwd=place, stdout=log, stderr=log)

    def after(self, flag: str) -> str:
        return self.words[self.words.index(flag) + 1] if flag in self.words else ""

    def connection(self) -> http.client.HTTPConnection:
        if "--ssl-key-file" in self.words:
            context = ssl.create_default_context(cafile=CERTIFICATE)
            return http.client.HTTPSConnection("localhost", self.port, context=context)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_SECONDS)
        if self.after("--host").endswith(".sock"):
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(self.after("--host"))
        return connection

    def ask(self, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
        connection = self.connection()
        try:
            headers = {"Authorization": f"Bearer {self.after('--api-key')}"}
            method = "GET" if body is None else "POST"
            connection.request(method, self.after("--api-prefix") + path, json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def wait_ready(self) -> None:
        t_end = time.monotonic() + WAIT_SECONDS
        status = 503
        while status == 503 and self.process.poll() is None and time.monotonic() < t_end:
            time.sleep(0.02)
            with contextlib.suppress(OSError):
                status, _ = self.ask("/health")
        assert status == 200, self.log.read_text()


@pytest.mark.parametrize("line", [line for line, _ in LINES])
def test_it_serves(line: str, place: Path) -> None:
    if "::1" in line and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    server = Pasted(line, place)
    try:
        server.wait_ready()
        if "--embedding" in server.words:
            status, answer = server.ask("/v1/embeddings", {"input": "x"})
            assert (status, len(answer["data"])) == (200, 1)
        elif "--reranking" in server.words:
            status, answer = server.ask("/v1/rerank", {"query": "x", "documents": ["y", "z"]})
            assert (status, len(answer["results"])) == (200, 2)
        else:
            status, answer = server.ask("/completion", {"prompt": "x", "n_predict": 1})
            assert (status, answer["tokens_predicted"]) == (200, 1)
    finally:
        server.process.terminate()
        assert server.process.wait(WAIT_SECONDS) == 0
