"""The attacks of `python -m bench attacks`, as far as they need no server."""

import argparse
import base64
import io
import os
from pathlib import Path

import pytest
from PIL import Image

from bench.attacks import bodies, sending, watch
from bench.attacks import command as attacks


def flags(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    attacks.add_flags(parser)
    return parser.parse_args(["--model", "x.gguf", *words])


def test_attacks_are_chosen_by_name() -> None:
    name = "special tokens, 4 MB, /tokenize"
    assert flags("--only", name, "--only", "noise").only == [name, "noise"]
    assert flags().only is None
    with pytest.raises(SystemExit):
        flags("--only", "no such attack")


def test_every_attack_has_a_server_and_a_row() -> None:
    kinds = {attack.server for attack in attacks.ATTACKS.values()}
    assert kinds == {sending.PLAIN, sending.TLS, sending.MEDIA}
    for kind in kinds:
        names = [name for name, attack in attacks.ATTACKS.items() if attack.server == kind]
        assert names
    assert attacks.ATTACKS["none"].run is None
    assert attacks.ATTACKS["long system_prompt"].undo, "else the next rows would have its prompt"


def test_without_a_projector_there_are_no_attacks_by_images(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "images of 16 million pixels"
    assert attacks.main(flags("--only", name)) == 0
    assert f"| {name:36} | skipped: there is no --mmproj |" in capsys.readouterr().out


def test_an_image_of_many_pixels_is_small() -> None:
    head, _, data = bodies._png(7).partition(",")
    assert head == "data:image/png;base64"
    assert len(data) < 500_000
    image = Image.open(io.BytesIO(base64.b64decode(data)))
    assert image.size == (bodies.IMAGE_SIDE, bodies.IMAGE_SIDE)


def test_memory_of_this_process() -> None:
    held = bytes(50 << 20)
    before = watch.memory_mb(os.getpid())
    touched = bytearray(b"x" * (50 << 20))
    assert watch.memory_mb(os.getpid()) > before + 40
    assert len(held) == len(touched)
    assert watch.memory_mb(2**22 + 1) == 0
