"""A conversation goes on where it was when its engine has ended: killed, asleep or unloaded. Its prompt is not read
again, on the real program."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from support.live_daemon import Live, engines, model_path, until
from support.models.tiny_kv_models import write_model

FLAGS = ("-np", "2", "-c", "2048", "--metrics", "--slots")
# So certain that no rounding changes the text.
COUNTING = "one two three four five six seven eight nine ten " * 12


def metric(server: Live, name: str) -> float:
    lines = server.client.get("/metrics").body.decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(name + " "))


def ask(server: Live, prompt: str, **body: object) -> tuple[str, int]:
    """The text, and how many tokens of the prompt were not read again."""
    answer = server.client.post(
        "/completion", {"prompt": prompt, "n_predict": 8, "temperature": 0, **body}
    ).json
    return answer["content"], answer["timings"]["cache_n"]


def first_turn(server: Live) -> tuple[str, int]:
    """Ask, and wait until the turn is in the cache memory. The conversation so far, and how many tokens it has."""
    prompt = COUNTING + "one two three"
    text, _ = ask(server, prompt)
    n_tokens = len(server.client.post("/tokenize", {"content": prompt + text}).json["tokens"])
    until(lambda: metric(server, "llamad:prompt_cache_entries") >= 1, "the turn was not saved")
    return prompt + text, n_tokens


def kill_engine(server: Live) -> None:
    (pid,) = engines(server.process.pid)
    os.kill(pid, signal.SIGKILL)
    until(lambda: engines(server.process.pid) not in ([], [pid]), "no other engine was started")
    server.wait_ready()


@pytest.mark.parametrize("kind", ["streams", "unified"])
def test_a_killed_engine_leaves_its_conversations(kind: str) -> None:
    flags = {"unified": ("--kv-unified",)}.get(kind, ())
    with Live(*FLAGS, *flags) as server:
        conversation, n_tokens = first_turn(server)
        expected, n_cached = ask(server, conversation + " and")
        assert n_cached >= n_tokens - 2
        until(lambda: metric(server, "llamad:prompt_cache_saves_total") >= 2)
        kill_engine(server)
        text, n_cached = ask(server, conversation + " and")
        assert n_cached >= n_tokens - 2
        assert text == expected
        server.wait_line("the prompts of the last engine are kept: 1")


# Memories of other kinds, of tiny models: a window, a recurrent state, and a hybrid of it and attention.
@pytest.mark.parametrize("kind", ["llama", "gemma3", "gpt-oss", "mamba", "jamba", "qwen35"])
def test_every_kind_of_memory_is_kept(kind: str, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model.gguf", kind)
    prompt = "".join(chr(97 + i * i % 26) for i in range(400))
    flags = ("-np", "2", "-c", "2048", "--metrics", "-ctk", "f32", "-ctv", "f32")
    with Live(*flags, model=model) as server:
        text, _ = ask(server, prompt)
        # Where states can be cut and have an end, that is an entry of its own.
        n_entries = 1 if kind in ("llama", "mamba") else 2
        until(lambda: metric(server, "llamad:prompt_cache_entries") >= n_entries, "the turn was not saved")
        kill_engine(server)
        again, n_cached = ask(server, prompt)
        assert n_cached > 390
        assert again == text


def test_wrong_bytes_are_dropped() -> None:
    with Live(*FLAGS) as server:
        conversation, _ = first_turn(server)
        expected, _ = ask(server, conversation + " and")
        until(lambda: metric(server, "llamad:prompt_cache_saves_total") >= 2)
        damage(server.process.pid)
        kill_engine(server)
        server.wait_line("1 saved prompts of the last engine were damaged and are computed again")
        assert ask(server, conversation + " and") == (expected, 0)


def target_of(descriptor: Path) -> str:
    """Return what the descriptor is; others may be closed meanwhile."""
    try:
        return os.readlink(descriptor)
    except FileNotFoundError:
        return ""


def damage(front: int) -> None:
    """Change some bytes of every megabyte that the front's cache memory has."""
    folder = Path(f"/proc/{front}/fd")
    (path,) = [one for one in folder.iterdir() if "llamad-cache" in target_of(one)]
    with path.open("r+b", buffering=0) as file:
        at = 2 << 20  # where the entries begin
        while True:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:
                return  # no more pages
            os.pwrite(file.fileno(), b"damage", at + 2048)
            at += 1 << 20


def test_a_model_that_slept_goes_on() -> None:
    with Live(*FLAGS, "--sleep-idle-seconds", "2") as server:
        conversation, n_tokens = first_turn(server)
        until(lambda: server.client.get("/props").json["is_sleeping"], "it did not sleep")
        until(lambda: engines(server.process.pid) == [], "its engine did not end")
        _, n_cached = ask(server, conversation + " and")
        assert n_cached >= n_tokens - 2


def is_unloaded(server: Live, name: str) -> bool:
    models = {one["id"]: one["status"]["value"] for one in server.client.get("/models").json["data"]}
    return bool(models[name] == "unloaded")


def test_a_model_that_was_unloaded_goes_on(tmp_path: Path) -> None:
    """It is asked to end right after its turn: what is not saved yet is saved then."""
    for name in ("one", "two"):
        (tmp_path / f"{name}.gguf").symlink_to(model_path())
    with Live("--models-dir", str(tmp_path), "-np", "2", "-c", "2048", ready=False) as server:
        prompt = COUNTING + "one two three"
        text, _ = ask(server, prompt, model="one")
        n_tokens = len(
            server.client.post("/tokenize", {"content": prompt + text, "model": "one"}).json["tokens"]
        )
        assert server.client.post("/models/unload", {"model": "one"}).status == 200
        until(lambda: is_unloaded(server, "one"), "it was not unloaded")
        _, n_cached = ask(server, prompt + text + " and", model="one")
        assert n_cached >= n_tokens - 2
        _, n_cached = ask(server, prompt + text + " and", model="two")
        assert n_cached == 0
