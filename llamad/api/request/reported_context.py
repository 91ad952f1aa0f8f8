"""Token counts as clients of Anthropic's dialect see them, with --report-context. Pure functions.

Such clients assume a context of 200,000 tokens and compact their conversation when they have used up most of it. Counts
in proportion make them do so in time, whatever the context really is.
"""

from __future__ import annotations

import msgspec

from llamad.flags.settings import ModelSettings
from llamad.protocol.model_info import Model


class Scale(msgspec.Struct, frozen=True):
    """Turns counts of a context of `n_ctx` tokens into counts of one of `n_reported`."""

    n_reported: int
    n_ctx: int

    @classmethod
    def of(cls, settings: ModelSettings, model: Model) -> Scale:
        return cls(settings.report_context or model.n_ctx_slot, model.n_ctx_slot)

    def __call__(self, n_tokens: int) -> int:
        """Return the count to report. It is rounded up: a client must not believe that there is room where there is
        none."""
        return -(-n_tokens * self.n_reported // self.n_ctx)
