"""Images of several keys: few are decoded at a time, clients that leave give theirs back, keys take turns, and none
learns from the cache what another has sent."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, TimeoutError
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.http_client import Answer
from support.live_daemon import Live, until
from support.media_files import image
from support.models.tiny_kv_models import N_EMBD, write_model
from support.models.tiny_projectors import write_projector

from llamad.media.reader import N_PLACES

FLAGS = ("-c", "1024", "-np", "1", "--no-warmup", "--api-key", "many,one")
MANY, ONE = ({"Authorization": f"Bearer {key}"} for key in ("many", "one"))
SIDE = 2500  # 19 MB of pixels in 20 KB
N_MANY = 12
NOT_SERVED_SECONDS = 1.0
SENT_SECONDS = 3.0  # in which all of them could be decoded


@pytest.fixture(scope="module")
def files(tmp_path_factory: Any) -> tuple[str, str]:
    folder: Path = tmp_path_factory.mktemp("media")
    model = write_model(folder / "model.gguf", "llama", np.float32)
    return model, write_projector(folder / "projector.gguf", "janus_pro", N_EMBD)


@pytest.fixture(scope="module")
def server(files: tuple[str, str]) -> Iterator[Live]:
    with Live(*FLAGS, "--mmproj", files[1], model=files[0]) as server:
        yield server


def large(i: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (SIDE, SIDE), (i, 0, 0)).save(out, "PNG")
    return out.getvalue()


def body(data: bytes) -> dict[str, Any]:
    prompt = {
        "prompt_string": "Look: <__media__> and tell",
        "multimodal_data": [base64.b64encode(data).decode()],
    }
    return {"prompt": prompt, "n_predict": 1}


def ask(server: Live, data: bytes, headers: dict[str, str]) -> Answer:
    return server.client.post("/completion", body(data), headers=headers)


def count(server: Live, data: bytes, headers: dict[str, str]) -> Answer:
    """Encodes an image, and nothing else."""
    url = "data:image/png;base64," + base64.b64encode(data).decode()
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "tell"}]
    asked = {"messages": [{"role": "user", "content": content}]}
    return server.client.post("/v1/chat/completions/input_tokens", asked, headers=headers)


def encoder(server: Live) -> int:
    """The encoder's process id."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            is_child = f"PPid:\t{server.process.pid}\n" in Path(f"/proc/{name}/status").read_text()
            if is_child and b"llamad.media.encoder" in Path(f"/proc/{name}/cmdline").read_bytes():
                return int(name)
        except OSError:
            pass
    raise AssertionError("there is no encoder")


@contextmanager
def no_encoder(server: Live) -> Iterator[None]:
    """What would have to be encoded waits meanwhile."""
    pid = encoder(server)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def memory(server: Live) -> list[int]:
    """The sizes of files and of decoded files in the front's memory."""
    folder, sizes = f"/proc/{server.process.pid}/fd", []
    for name in os.listdir(folder):
        try:
            if re.search("memfd:llamad-(decoded|media)", os.readlink(f"{folder}/{name}")):
                sizes.append(os.stat(f"{folder}/{name}").st_size)
        except OSError:
            pass
    return sizes


def send(server: Live, data: bytes) -> socket.socket:
    """A request whose answer nobody reads."""
    sock = socket.create_connection((server.client.host, server.client.port), 30)
    payload = json.dumps(body(data)).encode()
    head = "POST /completion HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer many\r\n"
    sock.sendall(f"{head}Content-Length: {len(payload)}\r\n\r\n".encode() + payload)
    return sock


def test_few_are_decoded_at_a_time_and_clients_give_theirs_back(server: Live) -> None:
    """They were all decoded at once, 19 MB each, and stayed when their clients had gone."""
    n_before = server.n_descriptors()
    with no_encoder(server):
        clients = [send(server, large(i)) for i in range(N_MANY)]
        until(lambda: memory(server).count(SIDE * SIDE * 3) >= 2)
        most = 0
        for _ in range(20):
            assert server.client.get("/health").status == 200
            most = max(most, len(memory(server)))
            time.sleep(0.1)
        assert most <= N_PLACES
        for client in clients:
            client.close()
        until(lambda: len(memory(server)) <= 1, "the clients have left, and their files have not")
    until(lambda: not memory(server))
    until(lambda: server.n_descriptors() <= n_before + 2 * N_PLACES)  # of processes that are kept
    assert ask(server, image(7), ONE).status == 200


def test_keys_take_turns(server: Live) -> None:
    answered: list[int] = []
    pictures = [large(100 + i) for i in range(N_MANY)]

    def many(i: int) -> None:
        answered.append(count(server, pictures[i], MANY).status)

    with ThreadPoolExecutor(N_MANY) as pool:
        with no_encoder(server):
            asked = [pool.submit(many, i) for i in range(N_MANY)]
            time.sleep(SENT_SECONDS)
        assert count(server, image(8), ONE).status == 200
        assert len(answered) <= N_MANY // 2
        for one in asked:
            one.result()
    assert answered == [200] * N_MANY


@pytest.mark.parametrize("is_shared", [False, True])
def test_the_cache_is_each_keys_own(files: tuple[str, str], is_shared: bool) -> None:
    """Unless prefixes are shared, too."""
    flags = (*FLAGS, "--mmproj", files[1], *(["--share-prefixes"] if is_shared else []))
    picture = image(9)
    with Live(*flags, model=files[0]) as server, ThreadPoolExecutor(1) as pool:
        assert ask(server, picture, MANY).status == 200
        with no_encoder(server):
            assert ask(server, picture, MANY).status == 200
            other = pool.submit(ask, server, picture, ONE)
            if is_shared:
                assert other.result().status == 200
            else:
                with pytest.raises(TimeoutError):
                    other.result(NOT_SERVED_SECONDS)
        assert other.result().status == 200


def test_the_queue_has_a_limit_and_a_part_for_others(files: tuple[str, str]) -> None:
    """Also for what is only counted."""
    flags = (*FLAGS, "--queue-max", "4", "--mmproj", files[1])
    with Live(*flags, model=files[0]) as server, ThreadPoolExecutor(N_MANY + 1) as pool:
        with no_encoder(server):
            asked = [pool.submit(count, server, image(20 + i), MANY) for i in range(N_MANY)]
            until(lambda: sum(one.done() for one in asked) >= N_MANY - 4)
            other = pool.submit(count, server, image(19), ONE)
            with pytest.raises(TimeoutError):
                other.result(NOT_SERVED_SECONDS)
        answers = [one.result() for one in asked]
        assert sorted(one.status for one in answers) == [200] * 4 + [429] * (N_MANY - 4)
        assert other.result().status == 200
