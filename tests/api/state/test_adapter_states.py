"""States that LoRA adapters computed: in files, in sessions and their archives they name their set, and serve only
that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.http_client import Answer, Client
from support.live_daemon import Live
from support.models.tiny_adapters import write_lora

FLAGS = ("-np", "2", "-c", "1024", "--slots", "--no-warmup", "--alias", "base", "--cache-ram", "0")
PROMPT = "Once upon a time there was a small house"
FILE = {"filename": "slot.bin"}
ARCHIVE = {"file": "archive.bin"}


@pytest.fixture(scope="module")
def folder(tiny: str, tmp_path_factory: Any) -> Path:
    path: Path = tmp_path_factory.mktemp("states")
    (path / "saved").mkdir()
    for seed in (51, 52):
        write_lora(path / f"{seed}.gguf", tiny, seed)
    return path


def flags(folder: Path, *seeds: int) -> tuple[str, ...]:
    named = [word for seed in seeds for word in ("--lora", f"s{seed}={folder / f'{seed}.gguf'}")]
    return (*FLAGS, "--slot-save-path", str(folder / "saved"), *named)


@pytest.fixture(scope="module")
def client(tiny: str, folder: Path) -> Iterator[Client]:
    with Live(*flags(folder, 51, 52), model=tiny) as live:
        yield live.client


def n_cached(client: Client, model: str, slot: int = 0) -> int:
    body = {"prompt": PROMPT, "id_slot": slot, "n_predict": 2, "model": model}
    return int(client.post("/completion", body).json["timings"]["cache_n"])


def done(answer: Answer) -> None:
    assert answer.status == 200, answer.body


def fill(client: Client, model: str) -> None:
    """Slot 0 holds what this set computed."""
    done(client.post("/slots/0?action=erase"))
    n_cached(client, model)


def test_a_slots_file_serves_its_set_alone(client: Client) -> None:
    fill(client, "base:s51")
    done(client.post("/slots/0?action=save", FILE))
    for model, is_served in (("base:s51", True), ("base:s52", False), ("base", False)):
        done(client.post("/slots/1?action=restore", FILE))
        assert (n_cached(client, model, 1) > 4) == is_served, model


def test_a_session_serves_its_set_alone_each_time_it_is_restored(client: Client) -> None:
    """The first restore used to cut the set's name off the session, and the second gave the base what an adapter had
    computed."""
    fill(client, "base:s52")
    done(client.post("/sessions/1?action=save&slot=0"))
    sizes = set()
    for model, is_served in (("base:s52", True), ("base", False), ("base:s51", False), ("base:s52", True)):
        done(client.post("/sessions/1?action=restore&slot=1"))
        assert (n_cached(client, model, 1) > 4) == is_served, model
        sizes.add(client.get("/sessions").json[0]["size"])
    assert len(sizes) == 1
    done(client.post("/sessions/1?action=remove", ARCHIVE))
    done(client.post("/sessions/1?action=restore&slot=1", ARCHIVE))
    assert n_cached(client, "base:s52", 1) > 4


def test_a_set_that_is_not_loaded_is_refused(client: Client, tiny: str, folder: Path) -> None:
    """Another server has one of the two adapters: it takes what that computed, which no request has used there yet."""
    fill(client, "base:s51")
    done(client.post("/slots/0?action=save", {"filename": "known.bin"}))
    fill(client, "base:s52")
    done(client.post("/slots/0?action=save", {"filename": "unknown.bin"}))
    with Live(*flags(folder, 51), model=tiny) as live:
        other = live.client
        n_cached(other, "base", 1)
        for path, body in (
            ("/slots/1", {"filename": "unknown.bin"}),
            ("/sessions/3", {"file": "unknown.bin"}),
        ):
            refused = other.post(f"{path}?action=restore&slot=1", body)
            assert refused.status == 400
            assert "LoRA" in refused.error["message"]
        assert n_cached(other, "base", 1) > 4  # the slot keeps what it held
        done(other.post("/slots/1?action=restore", {"filename": "known.bin"}))
        assert n_cached(other, "base:s51", 1) > 4
