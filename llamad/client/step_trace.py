"""The step trace: a JSON line for each engine step, for `--step-trace FILE`.

Written on the event loop through a buffered file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from llamad.client.events import Step


class StepTrace:
    """Fields from the engine: step, t_us, plan_us, decode_us, wait_us (for the device, after decode_us), sample_us,
    emit_us, budget, n_tokens, n_writing, n_fillers (padding tokens, removed again), n_media (embeddings of an image or
    a sound, decoded first), slots ([slot, tokens in this step with padding, whether it is decoding]).

    Fields from the event loop: n_wakes, wake_us, write_us, of all its iterations since the previous line. If one
    iteration takes several steps, the first, which waited longest, gets all of its time. So the sums over all lines
    are those of /metrics.
    """

    def __init__(self, path: str) -> None:
        self._file = open(path, "w", encoding="utf-8", buffering=1 << 16)  # noqa: SIM115 - closed by close()
        self._last_wakes: Mapping[str, int] = {}

    def write(self, steps: Sequence[Step], wakes: Mapping[str, int]) -> None:
        """Write the steps of one iteration; `wakes` is Port.wakes() after their responses were written."""
        since = {name: n - self._last_wakes.get(name, 0) for name, n in wakes.items()}
        self._last_wakes = wakes
        for step in steps:
            line = msgspec.to_builtins(step) | since
            self._file.write(msgspec.json.encode(line).decode() + "\n")
            since = dict.fromkeys(wakes, 0)

    def close(self) -> None:
        self._file.close()
