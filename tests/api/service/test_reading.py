"""Bodies that are read in a worker: what a refused one held is freed there."""

from __future__ import annotations

from functools import partial
from types import FrameType
from typing import Any

import msgspec
import pytest

from llamad.api.request.body import Body
from llamad.api.request.errors import ApiError
from llamad.api.service import body_reading


class Request(msgspec.Struct):
    stop: list[str] = []
    temperature: float = 0.0


def frames_of(error: BaseException | None) -> list[FrameType]:
    """All frames that the error keeps alive."""
    frames: list[FrameType] = []
    while error is not None:
        traceback = error.__traceback__
        while traceback is not None:
            frames.append(traceback.tb_frame)
            traceback = traceback.tb_next
        error = error.__context__
    return frames


def test_a_refusal_does_not_carry_the_body_to_the_event_loop() -> None:
    data = msgspec.json.encode({"stop": ["a"] * 1000, "temperature": "x"})
    with pytest.raises(ApiError, match="temperature") as caught:
        body_reading._without_gc(partial(Body(Request).decode, data))
    values: list[Any] = [value for frame in frames_of(caught.value)[1:] for value in frame.f_locals.values()]
    assert not any(isinstance(value, dict | Request) for value in values)
    assert len(values) < 4
