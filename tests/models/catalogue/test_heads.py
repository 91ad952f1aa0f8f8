"""What the head of a file says about a model that is not loaded, beside what llama-server and the engine say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.live_daemon import model_path
from support.many_models.catalogues import MODEL, Place
from support.models.tiny_projectors import write_projector
from support.peer import llama_server

from llamad.engine.loading.gguf_head import Head, read_head
from llamad.models.catalogue import heads
from llamad.models.catalogue.heads import Heads


def test_numbers_of_a_model() -> None:
    head = Heads().read(model_path())
    assert head is not None
    assert (head.architecture, head.n_ctx_train, head.n_embd, head.n_vocab) == ("llama", 8192, 576, 49152)
    assert head.n_params == 134515008
    assert 0.9 < head.size / os.path.getsize(model_path()) < 1


@pytest.mark.parametrize("data", [b"", b"GGUF", MODEL, b"GGUF\xff" * 30])
def test_a_file_without_a_head(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    assert Heads().read(str(path)) is None
    assert Heads().read(str(tmp_path / "nowhere")) is None
    assert Heads().read(str(tmp_path)) is None


def test_a_file_is_read_once_until_it_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.gguf"
    path.symlink_to(model_path())
    opened = []

    def read(name: str) -> Head:
        opened.append(name)
        return read_head(name)

    monkeypatch.setattr(heads, "read_head", read)
    kept = Heads()
    assert kept.known(str(path)) is None
    first = kept.read(str(path))
    assert kept.read(str(path)) is kept.known(model_path()) is first
    assert len(opened) == 1
    path.unlink()
    path.write_bytes(MODEL)
    assert kept.known(str(path)) is None
    assert kept.read(str(path)) is None
    assert len(opened) == 2


def test_a_missing_part_has_no_head(tmp_path: Path) -> None:
    path = tmp_path / "m-00001-of-00002.gguf"
    path.symlink_to(model_path())
    assert Heads().read(str(path)) is None
    other = tmp_path / "m-00002-of-00002.gguf"
    other.symlink_to(model_path())
    whole, part = Heads().read(str(path)), Heads().read(model_path())
    assert whole is not None
    assert part is not None
    assert (whole.n_params, whole.size) == (2 * part.n_params, 2 * part.size)


def test_modalities_are_those_of_llama_server(place: Place) -> None:
    for name, kind in (("images", "gemma3"), ("sound", "gemma4ua"), ("text", ""), ("broken", "")):
        place.file(f"models/{name}/m.gguf")
        if kind:
            write_projector(place.models / name / "mmproj.gguf", kind, 64)
    place.file("models/broken/mmproj.gguf")
    entries = place.read().entries
    kept = Heads()
    ours = {name: list(kept.modalities(entry.settings)) for name, entry in entries.items()}
    assert ours == {
        "broken": ["text"],
        "images": ["text", "image"],
        "sound": ["text", "audio"],
        "text": ["text"],
    }
    with llama_server(None, "--models-dir", str(place.models), env=dict(place.environ)) as server:
        listed = server.get("/models").json["data"]
    assert {one["id"]: one["architecture"]["input_modalities"] for one in listed} == ours


def test_a_model_that_is_not_there_reads_text() -> None:
    assert Heads().modalities(None) == ("text",)
