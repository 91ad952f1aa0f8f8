"""docs/troubleshooting.md: each message on the page is provoked here, and no other."""

from __future__ import annotations

import re
import select
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.fake_daemon import Faked
from support.http_client import Answer
from support.live_daemon import Live

from llamad.engine.llama_log import LlamaLog
from llamad.engine.testing.fake import Fake

PAGE = Path(__file__).resolve().parents[2] / "docs" / "troubleshooting.md"
HI = {"messages": [{"role": "user", "content": "Hi"}]}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}

ERROR = 4
CUDA_LINE = "ggml_backend_cuda_alloc: allocating 4096.00 MiB on device 0: cudaMalloc failed: out of memory"

Provoked = tuple[int, str]  # the status, or 0; and the text


def messages() -> list[str]:
    """The messages on the page."""
    return re.findall(r"^```text\n(.*?)\n```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def shown(message: str, text: str) -> bool:
    """Whether a text has the message of the page, in which … stands for anything."""
    return re.search(".*?".join(map(re.escape, message.split("…"))), text, re.DOTALL) is not None


def said(reply: Answer) -> Provoked:
    return reply.status, reply.error["message"]


def started(*flags: str) -> Provoked:
    command = [sys.executable, "-m", "llamad", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    return 0, done.stderr


def port_in_use(tiny: str, _: Path) -> Provoked:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return started("-m", tiny, "--port", str(taken.getsockname()[1]))


def no_file(_: str, folder: Path) -> Provoked:
    return started("-m", str(folder / "none.gguf"), "--port", "0")


def no_gguf(_: str, folder: Path) -> Provoked:
    (folder / "model.safetensors").write_bytes(b"x" * 1000)
    return started("-m", str(folder / "model.safetensors"), "--port", "0")


def no_memory(tiny: str, _: Path) -> Provoked:
    limit = ("prlimit", f"--as={8 << 30}")
    with Live("-c", "200000000", "--fit", "off", model=tiny, before=limit, ready=False) as live:
        return 0, live.wait_line("memory ran out: .*").string


def no_device_memory(_: str, __: Path) -> Provoked:
    """There is no GPU here: llama.cpp's line is written as ggml-cuda.cu formats it."""
    llama_log = LlamaLog()
    llama_log._level[0] = ERROR
    llama_log._notice(CUDA_LINE)
    return 0, llama_log.explained("the context could not be created")


def unknown_flag(tiny: str, _: Path) -> Provoked:
    return started("-m", tiny, "--slotz")


def wrong_key(_: str, __: Path) -> Provoked:
    with Faked(Fake(), "--api-key", "secret") as server:
        return said(server.client.post("/v1/chat/completions", HI))


def other_host(_: str, __: Path) -> Provoked:
    with Faked(Fake()) as server:
        return said(server.client.get("/props", headers={"Host": "llm.example.com"}))


def other_origin(_: str, __: Path) -> Provoked:
    with Faked(Fake()) as server:
        return said(
            server.client.post("/v1/chat/completions", HI, headers={"Origin": "https://app.example.com"})
        )


def loading(_: str, __: Path) -> Provoked:
    with Faked(Fake(), load=False) as server:
        return said(server.client.post("/v1/chat/completions", HI))


def full_queue(_: str, __: Path) -> Provoked:
    """One of three requests runs and one waits, so the third has told that the queue is full."""
    with Faked(Fake(script=b"x" * 500, decode_us=60_000), "-np", "1", "--queue-max", "1") as server:
        body = {"prompt": "x", "n_predict": 400}
        streams = [server.client.open_stream(body) for _ in range(3)]
        try:
            while not any(one.recv(12) == b"HTTP/1.1 429" for one in select.select(streams, [], [])[0]):
                pass
            reply = server.client.post("/completion", body)
        finally:
            for one in streams:
                one.close()
    assert int(reply.headers["retry-after"]) >= 1
    return said(reply)


def long_prompt(_: str, __: Path) -> Provoked:
    with Faked(Fake(n_ctx=256), n_ctx=256) as server:
        return said(server.client.post("/completion", {"prompt": "x" * 1000}))


def unknown_model(_: str, folder: Path) -> Provoked:
    with Live("--models-dir", str(folder)) as live:
        return said(live.client.post("/v1/chat/completions", {"model": "none", **HI}))


def endpoint_off(_: str, __: Path) -> Provoked:
    with Faked(Fake()) as server:
        for path, flag in (("/slots", "--slots"), ("/metrics", "--metrics")):
            assert flag in said(server.client.get(path))[1]
        return said(server.client.post("/v1/embeddings", {"input": "x"}))


def no_images(_: str, __: Path) -> Provoked:
    with Faked(Fake()) as server:
        body = {"messages": [{"role": "user", "content": [IMAGE]}]}
        return said(server.client.post("/v1/chat/completions", body))


def left_out(_: str, __: Path) -> Provoked:
    with Faked(Fake()) as server:
        reply = server.client.post("/v1/chat/completions", {**HI, "max_tokens": 1, "prediction": {"a": 1}})
    return 0, f"X-Llamad-Ignored: {reply.headers['x-llamad-ignored']}"


def no_tools(_: str, __: Path) -> Provoked:
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    with Faked(Fake(), "--chat-template", template) as server:
        return 0, server.client.get("/props").body.decode()


def a_loop(_: str, __: Path) -> Provoked:
    with Faked(Fake(n_ctx=4096, n_seqs=2), "-np", "2", n_ctx=4096) as server:
        body = {**HI, "max_tokens": 2500, "verbose": True}
        return 0, server.client.post("/v1/chat/completions", body).body.decode()


def computed_again(tiny: str, _: Path) -> Provoked:
    with Live("-np", "1", "-c", "4096", "--cache-ram", "0", model=tiny) as live:
        for first in ("Once", "Now"):
            assert (
                live.client.post("/completion", {"prompt": f"{first} {'so ' * 300}", "n_predict": 1}).status
                == 200
            )
        assert (
            live.client.post("/completion", {"prompt": f"Once {'so ' * 300}", "n_predict": 1}).status == 200
        )
        return 0, live.wait_line("known tokens were computed again.*").string


PROVOKED: dict[Callable[[str, Path], Provoked], int] = {
    port_in_use: 0,
    no_file: 0,
    no_gguf: 0,
    no_memory: 0,
    no_device_memory: 0,
    unknown_flag: 0,
    wrong_key: 401,
    other_host: 421,
    other_origin: 403,
    loading: 503,
    full_queue: 429,
    long_prompt: 400,
    unknown_model: 404,
    endpoint_off: 501,
    no_images: 501,
    left_out: 0,
    no_tools: 0,
    a_loop: 0,
    computed_again: 0,
}


@pytest.mark.parametrize("provoke", PROVOKED, ids=lambda one: one.__name__)
def test_a_message_of_the_page(provoke: Any, tiny: str, tmp_path: Path) -> None:
    """It is the one at this place of the page, and the page says its status."""
    index = list(PROVOKED).index(provoke)
    status, text = provoke(tiny, tmp_path)
    message = messages()[index]
    assert shown(message, text), text
    assert status == PROVOKED[provoke]
    after = PAGE.read_text(encoding="utf-8").partition(message)[2].partition("```text")[0]
    assert not status or f"Status {status}" in after


def test_every_message_is_provoked() -> None:
    assert len(messages()) == len(PROVOKED)
    assert len(set(messages())) == len(PROVOKED)
