"""--cache-disk over the real program: a conversation goes on after a restart without being computed again, whatever
ended the daemon, and only for the key that had it."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.live_daemon import Live, model_path, until
from support.models.tiny_kv_models import write_model

from llamad.base.atomic_file import PREFIX
from llamad.models.cache_disk.folder import SUBFOLDER

# So certain that no rounding changes the text.
COUNTING = "one two three four five six seven eight nine ten " * 40 + "one two three"
NEXT = " four five six seven eight nine ten one two three"
FLAGS = ("-np", "2", "-c", "4096", "--metrics")


def ask(server: Live, prompt: str | list[int], key: str = "", **more):
    headers = {"Authorization": f"Bearer {key}"} if key else None
    body = {"prompt": prompt, "n_predict": 8, "temperature": 0, **more}
    answer = server.client.post("/completion", body, headers=headers)
    assert answer.status == 200, answer.body
    return answer.json


def entries(folder: Path) -> list[Path]:
    return [*(folder / SUBFOLDER).glob("*.block"), *(folder / SUBFOLDER).glob("*.end")]


def wait_entries(folder: Path, n: int = 1) -> None:
    """Return when n prompts, or more files, were written, and no more are."""
    while True:
        until(lambda: len(entries(folder)) >= n, "nothing was written")
        n_before = len(entries(folder))
        time.sleep(2.5)
        if len(entries(folder)) == n_before:
            return


@pytest.fixture
def folder(tmp_path) -> Path:
    path = tmp_path / "prompts"
    path.mkdir()
    return path


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_conversation_goes_on_in_the_next_daemon(folder, number):
    with Live(*FLAGS, "--cache-disk", str(folder)) as server:
        first = ask(server, COUNTING)
        n_prompt = first["tokens_evaluated"]
        assert first["timings"]["cache_n"] == 0
        assert n_prompt > 400
        if number == signal.SIGKILL:
            wait_entries(folder)
        server.signal(number)
        server.process.wait(30)
    with Live(*FLAGS, "--cache-disk", str(folder)) as server:
        second = ask(server, COUNTING + NEXT)
        assert second["timings"]["cache_n"] >= n_prompt - 1
        assert second["content"] == first["content"] == " four five six seven eight nine ten one"
        metrics = server.client.get("/metrics").body.decode()
        assert "\nllamad:disk_cache_hits_total 1\n" in metrics
        # Now a slot has it, so that nothing is read again.
        assert ask(server, COUNTING + NEXT)["timings"]["cache_n"] >= n_prompt - 1
        assert "\nllamad:disk_cache_hits_total 1\n" in server.client.get("/metrics").body.decode()


def test_keys_do_not_find_each_others_conversations(folder, tiny):
    keys = ("--api-key", "mine", "--api-key", "other")
    with Live(*FLAGS, *keys, "--cache-disk", str(folder), model=tiny) as server:
        n_prompt = ask(server, COUNTING, "mine")["tokens_evaluated"]
        wait_entries(folder)
    # The keys are numbered in the order of their first requests, which is another one now.
    with Live(*FLAGS, *keys, "--cache-disk", str(folder), model=tiny) as server:
        assert ask(server, COUNTING, "other")["timings"]["cache_n"] == 0
        assert ask(server, COUNTING + NEXT, "mine")["timings"]["cache_n"] >= n_prompt - 1
    with Live(*FLAGS, "--cache-disk", str(folder), model=tiny) as server:
        assert ask(server, COUNTING)["timings"]["cache_n"] == 0
    with Live(*FLAGS, *keys, "--share-prefixes", "--cache-disk", str(folder), model=tiny) as server:
        # What the daemon without keys has left belongs to nobody, as what it shares does.
        assert ask(server, COUNTING + NEXT, "mine")["timings"]["cache_n"] >= n_prompt - 1


def test_models_of_a_router_share_the_folder_but_no_conversation(folder, tmp_path, tiny):
    models = tmp_path / "models"
    models.mkdir()
    for name in ("one", "two"):
        shutil.copy(tiny, models / f"{name}.gguf")
    flags = (*FLAGS, "--models-dir", str(models), "--models-max", "1", "--cache-disk", str(folder))
    with Live(*flags, ready=False) as server:
        for name in ("one", "two"):  # the first is unloaded for the second
            answer = ask(server, COUNTING, model=name)
            assert answer["timings"]["cache_n"] == 0
        wait_entries(folder, 2)
    with Live(*flags, ready=False) as server:
        for name in ("two", "one"):
            answer = ask(server, COUNTING + NEXT, model=name)
            assert answer["timings"]["cache_n"] >= answer["tokens_evaluated"] - 60
        assert "\nllamad:disk_cache_hits_total 2\n" in server.client.get("/metrics").body.decode()


def test_requests_that_arrive_together_read_their_conversation_once(folder, tiny):
    flags = ("-np", "4", "-c", "8192", "--metrics", "--cache-disk", str(folder))
    with Live(*flags, model=tiny) as server:
        n_prompt = ask(server, COUNTING)["tokens_evaluated"]
        wait_entries(folder)
    with Live(*flags, model=tiny) as server, ThreadPoolExecutor(4) as clients:
        answers = list(clients.map(lambda i: ask(server, f"{COUNTING} and {i}"), range(4)))
        assert min(answer["timings"]["cache_n"] for answer in answers) >= n_prompt - 1
        assert "\nllamad:disk_cache_hits_total 1\n" in server.client.get("/metrics").body.decode()


def test_other_settings_find_nothing_and_broken_files_cost_nothing_else(folder, tiny):
    with Live(*FLAGS, "--cache-disk", str(folder), model=tiny) as server:
        first = ask(server, COUNTING)
        wait_entries(folder)
    with Live(*FLAGS, "-ctk", "f32", "--cache-disk", str(folder), model=tiny) as server:
        assert ask(server, COUNTING)["timings"]["cache_n"] == 0
    for path in entries(folder):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0xFF
        path.write_bytes(data)
    with Live(*FLAGS, "--cache-disk", str(folder), model=tiny) as server:
        again = ask(server, COUNTING)
        assert (again["timings"]["cache_n"], again["content"]) == (0, first["content"])
        server.wait_line("of the cache on disk is removed: its checksum is wrong")


def test_a_folder_that_disappears_costs_no_request(folder, tiny):
    with Live(*FLAGS, "--cache-disk", str(folder), model=tiny) as server:
        first = ask(server, COUNTING)
        wait_entries(folder)
        shutil.rmtree(folder)
        assert ask(server, "Something else. " * 200)["tokens_evaluated"] > 400
        server.wait_line("cannot be written: .*; requests go on without it")
        assert ask(server, COUNTING)["content"] == first["content"]


def test_a_folder_that_is_not_there_stops_the_start(folder):
    command = [sys.executable, "-m", "llamad", "--port", "0", "--cache-disk"]
    model = model_path()
    done = subprocess.run(
        [*command, str(folder / "none"), "-m", model], capture_output=True, text=True, timeout=60
    )
    reason = f"llamad: --cache-disk: {folder / 'none'} is not a folder; create it, or name another one\n"
    assert (done.returncode, done.stderr) == (1, reason)
    done = subprocess.run(
        [*command, str(folder), "-m", model, "--cache-ram", "0"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "--cache-disk needs --cache-ram, which is 0" in done.stderr


@pytest.mark.parametrize("kind", ["gemma3", "mamba", "jamba"])
def test_memories_that_cannot_be_truncated_come_back_whole(folder, tmp_path, kind):
    model = write_model(tmp_path / f"{kind}.gguf", kind)
    flags = ("-np", "1", "-c", "2048", "--cache-disk", str(folder))
    with Live(*flags, model=model) as server:
        first = ask(server, "abcdefghij " * 60, n_predict=4, ignore_eos=True, return_tokens=True)
        wait_entries(folder)
    with Live(*flags, model=model) as server:
        body = {"content": "abcdefghij " * 60, "add_special": True}
        tokens = server.client.post("/tokenize", body).json["tokens"]
        assert len(tokens) == first["tokens_evaluated"] > 600
        answer = ask(server, [*tokens, *first["tokens"], 5, 6, 7], n_predict=4)
        assert answer["timings"]["cache_n"] >= len(tokens)
        # A prompt that leaves it early cannot use it.
        assert ask(server, [*tokens[:400], 5, 6, 7], n_predict=4)["timings"]["cache_n"] < 400


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("kind", ["gemma3", "jamba"])
def test_a_conversation_of_several_turns_goes_on_from_its_last_end(folder, tmp_path, kind, number):
    """Its cells and the ends of its state are entries of their own, in memory and on disk."""
    model = write_model(tmp_path / f"{kind}.gguf", kind)
    flags = ("-np", "2", "-c", "8192", "--metrics", "--cache-disk", str(folder))
    options = {"n_predict": 4, "ignore_eos": True, "return_tokens": True}
    tokens: list[int] = [1, *(3 + i * i % 97 for i in range(699))]
    with Live(*flags, model=model) as server:
        for turn in range(3):
            n_before = len(entries(folder))
            tokens += ask(server, tokens, **options)["tokens"] + [5 + turn] * 300
            wait_entries(folder, n_before + 1)
        expected = ask(server, tokens, **options)
        assert expected["timings"]["cache_n"] >= len(tokens) - 301
        wait_entries(folder)
        server.signal(number)
        server.process.wait(30)
    command = [sys.executable, "-m", "llamad", "cache", "verify", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, f"{len(entries(folder))} files are good, 0 are broken\n")
    assert len([*(folder / SUBFOLDER).glob("*.end")]) > 1
    with Live(*flags, model=model) as server:
        conversation = tokens + expected["tokens"] + [9] * 20
        answer = ask(server, conversation, **options)
        assert answer["timings"]["cache_n"] >= len(tokens) + 3
        assert "\nllamad:disk_cache_hits_total 1\n" in server.client.get("/metrics").body.decode()
        assert ask(server, conversation, cache_prompt=False, **options)["tokens"] == answer["tokens"]


def names(folder: Path) -> set[str]:
    return set(os.listdir(folder / SUBFOLDER))


def kill_and_start(model: str, folder: Path, n_times: int) -> None:
    """Kill the daemon while it writes, again and again: it starts, what was complete is there, the text is right."""
    chance, text, n_before = random.Random(3), None, 0
    for i in range(n_times):
        with Live(*FLAGS, "--cache-disk", str(folder), model=model) as server:
            answer = ask(server, COUNTING)
            text = text or answer["content"]
            assert answer["content"] == text
            before = names(folder)
            ask(server, f"Number {i}. " + "The quick brown fox jumps over the lazy dog. " * 30)
            until(lambda: names(folder) - before, "nothing was written")  # noqa: B023
            time.sleep(chance.choice([0.0, 0.0, 0.01, 0.02, 0.1, 2.0]))
            server.signal(signal.SIGKILL)
            server.process.wait()
        assert len(entries(folder)) >= n_before  # nothing that was complete is gone
        n_before = len(entries(folder))
        command = [sys.executable, "-m", "llamad", "cache", "verify", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout) == (0, f"{n_before} files are good, 0 are broken\n")
    with Live(*FLAGS, "--cache-disk", str(folder), model=model) as server:
        until(lambda: not [name for name in names(folder) if name.startswith(PREFIX)])
        assert ask(server, COUNTING)["content"] == text
        wait_entries(folder)


def test_a_daemon_killed_while_it_writes_starts_with_what_was_complete(folder, tiny):
    kill_and_start(tiny, folder, 5)


@pytest.mark.soak
def test_a_daemon_killed_fifty_times_while_it_writes_starts_with_what_was_complete(folder, tiny):
    kill_and_start(tiny, folder, 50)
