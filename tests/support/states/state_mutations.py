"""Strategies that turn real states into wrong ones, and the two ways to a slot: through the endpoints of a live server,
or straight to what is under them."""

from __future__ import annotations

import http.client
import json
import struct
from collections.abc import Callable

from hypothesis import strategies as st

from llamad.client.slot_states import StateRefused
from support.hosted_model import Hosted
from support.live_daemon import Live
from support.states.ses1_layouts import as_blob

NUMBERS = [
    0,
    1,
    2,
    255,
    4096,
    4097,
    2**31 - 1,
    2**31,
    2**32 - 1,
    0x7C00,
    0x7E00,
    0x7F80,
    0x7F800000,
    0x7FC00000,
]
FRONT = 200  # where most headers are

Change = Callable[[bytearray], bytearray]


def _place(x: int, n: int) -> int:
    return x % n if n else 0


def flip(x: int, bit: int) -> Change:
    def change(blob: bytearray) -> bytearray:
        if blob:
            blob[_place(x, len(blob))] ^= 1 << bit
        return blob

    return change


def overwrite(x: int, value: int) -> Change:
    def change(blob: bytearray) -> bytearray:
        at = _place(x, len(blob)) // 4 * 4
        if at + 4 <= len(blob):
            struct.pack_into("<I", blob, at, value)
        return blob

    return change


def step(x: int, by: int) -> Change:
    def change(blob: bytearray) -> bytearray:
        at = _place(x, len(blob)) // 4 * 4
        if at + 4 <= len(blob):
            (value,) = struct.unpack_from("<I", blob, at)
            struct.pack_into("<I", blob, at, (value + by) % 2**32)
        return blob

    return change


def cut(x: int) -> Change:
    return lambda blob: blob[: _place(x, len(blob))]


def insert(x: int, more: bytes) -> Change:
    def change(blob: bytearray) -> bytearray:
        at = _place(x, len(blob) + 1)
        return blob[:at] + more + blob[at:]

    return change


def remove(x: int, n: int) -> Change:
    def change(blob: bytearray) -> bytearray:
        at = _place(x, len(blob))
        return blob[:at] + blob[at + n :]

    return change


def graft(x: int, other: bytes) -> Change:
    """The rest of another model's, or of another setting's."""
    return lambda blob: blob[: _place(x, len(blob))] + other[_place(x, len(blob)) :]


def mutations(others: list[bytes]) -> st.SearchStrategy[list[Change]]:
    where = st.one_of(st.integers(0, FRONT), st.integers(0, 2**16))
    one = st.one_of(
        st.builds(flip, where, st.integers(0, 7)),
        st.builds(overwrite, where, st.sampled_from(NUMBERS) | st.integers(0, 2**32 - 1)),
        st.builds(step, where, st.sampled_from([-1, 1, 4, -4])),
        st.builds(cut, where),
        st.builds(insert, where, st.binary(min_size=1, max_size=40)),
        st.builds(remove, where, st.integers(1, 64)),
        st.builds(graft, where, st.sampled_from(others)),
    )
    return st.lists(one, min_size=1, max_size=3)


class Straight:
    """Under the endpoints."""

    def __init__(self, model: str, *flags: str) -> None:
        self._hosted = Hosted(model, *flags)

    def save(self, slot: int) -> bytes:
        return bytes(self._hosted.run(self._hosted.states.save(slot)).blob)

    def restore(self, slot: int, data: bytes) -> int:
        """The status that the client would see."""
        try:
            self._hosted.run(self._hosted.states.restore(slot, as_blob(data)))
        except StateRefused as error:
            return error.status
        return 200

    def next(self, slot: int, tokens: list[int]) -> tuple[int, float]:
        sink, _ = self._hosted.run(self._hosted.write(slot, tokens, 1, n_probs=1))
        return sink.tokens[0], sink.probs[0][0]

    def __enter__(self) -> Straight:
        return self

    def __exit__(self, *error: object) -> None:
        self._hosted.__exit__(*error)


class Served:
    """A live server, through one connection that is kept."""

    def __init__(self, model: str, *flags: str, env: dict[str, str] | None = None) -> None:
        self.live = Live("--slots", *flags, model=model, env=env)
        self._connection = http.client.HTTPConnection(
            self.live.client.host, self.live.client.port, timeout=60
        )

    def _post(self, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        self._connection.request("POST", path, body, headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def save(self, slot: int) -> bytes:
        status, data = self._post(
            f"/slots/{slot}?action=save-state", b"", {"Accept": "application/octet-stream"}
        )
        assert status == 200, data
        return data

    def restore(self, slot: int, data: bytes) -> int:
        status, body = self._post(
            f"/slots/{slot}?action=restore-state", data, {"Content-Type": "application/octet-stream"}
        )
        answer = json.loads(body)
        if status != 200:
            assert answer["error"]["code"] == status
            assert answer["error"]["message"]
        else:
            assert answer["success"] is True
        return status

    def next(self, slot: int, tokens: list[int]) -> tuple[int, float]:
        body = {"prompt": tokens, "id_slot": slot, "n_predict": 1, "temperature": 0, "n_probs": 1}
        status, answer = self._post("/completion", json.dumps({**body, "return_tokens": True}).encode(), {})
        assert status == 200, answer
        answer_json = json.loads(answer)
        return answer_json["tokens"][0], answer_json["completion_probabilities"][0]["logprob"]

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()
        self.live.__exit__(*error)
