"""Real states of tiny models, as inputs for the fuzzers: fuzz/corpus/ses1 holds them. This program writes it anew:
`python tests/support/states/ses1_corpus.py` from the checkout's root, with tests/ in PYTHONPATH."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

from support.hosted_model import Hosted
from support.models.tiny_kv_models import HYBRID_WINDOW, KINDS, write_model

CORPUS = Path(__file__).parents[3] / "fuzz" / "corpus" / "ses1"
TOKENS = [1, *(3 + byte for byte in b"sixteen letters!")]
SETTINGS = {
    "streams": ("-np", "3", "-c", "768"),
    "unified": ("-np", "3", "-c", "768", "--kv-unified"),
    "no-fa": ("-np", "1", "-c", "256", "-fa", "off"),
    "q8_0": ("-np", "2", "-c", "512", "-fa", "on", "-ctk", "q8_0", "-ctv", "q8_0"),
    "q4": ("-np", "1", "-c", "256", "-fa", "on", "-ctk", "q4_1", "-ctv", "q5_0"),
    "wide": ("-np", "1", "-c", "256", "-ctk", "f32", "-ctv", "bf16", "-fa", "on"),
}


def pack(one: bytes, two: bytes, state: bytes) -> bytes:
    return struct.pack("<II", len(one), len(two)) + one + two + state


def unpack(data: bytes) -> tuple[bytes, bytes, bytes]:
    n_one, n_two = struct.unpack_from("<II", data)
    return data[8 : 8 + n_one], data[8 + n_one : 8 + n_one + n_two], data[8 + n_one + n_two :]


def _case(model: str, flags: tuple[str, ...], n_tokens: int, slot: int) -> bytes:
    with Hosted(model, *flags) as h:
        states = []
        for n in (1, 2):
            h.run(h.states.erase(0))
            h.read(0, TOKENS[:n])
            states.append(bytes(h.run(h.states.save(0)).blob)[8 + 4 * n :])
        if n_tokens:
            h.read(slot, TOKENS[:n_tokens])
        return pack(states[0], states[1], bytes(h.run(h.states.save(slot)).blob))


def main() -> None:
    CORPUS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for kind in (*KINDS, HYBRID_WINDOW):
            model = write_model(Path(folder) / f"{kind}.gguf", kind)
            names = (
                list(SETTINGS)
                if kind == "llama"
                else ["streams", "no-fa"]
                if kind == "gemma3"
                else ["streams"]
            )
            for name in names:
                n_slots = int(SETTINGS[name][1])
                recurrent = kind in ("mamba", "jamba", HYBRID_WINDOW)
                (CORPUS / f"{kind}-{name}").write_bytes(
                    _case(model, SETTINGS[name], 5 if recurrent else 16, n_slots - 1)
                )
        (CORPUS / "llama-empty").write_bytes(
            _case(str(Path(folder) / "llama.gguf"), SETTINGS["streams"], 0, 2)
        )


if __name__ == "__main__":
    main()
