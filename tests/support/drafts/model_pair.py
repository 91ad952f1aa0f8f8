"""An engine over a fake model that drafts with a second one."""

from llamad.engine.drafts.draft_model import DraftModel
from llamad.engine.testing.fake import Fake
from llamad.engine.testing.fake_drafter import FakeDrafter
from support.drafts.drafted_tasks import CHAOS, MEMORIES, memory_options, play
from support.engine_harness import Harness


class Pair:
    """A harness whose engine drafts with another fake, which is wrong at a share of `astray` of the places, and from
    text, where a share of `text` is right; None: not from text."""

    def __init__(
        self,
        *,
        astray=0.0,
        text=None,
        n_fixed=7,
        n_slots=4,
        n_ctx=256,
        memory="streams",
        n_max=-1,
        has_device=False,
        is_named=False,
        **options,
    ):
        kind = {"n_ctx": n_ctx, "n_batch": 128, "n_seqs": n_slots, "chaos": CHAOS, **MEMORIES[memory]}
        self.target = Fake(**kind)
        n_rollback = kind.get("n_rollback", 0)
        for name in ("n_swa", "recurrent", "hybrid", "n_rollback"):
            kind.pop(name, None)
        self.draft = Fake(**kind, astray=astray)
        given = {"n_slots": n_slots, "n_ctx": n_ctx, "n_batch": 128, "cache_bytes": 1 << 20}
        self.h = Harness(self.target, **(given | memory_options(memory, n_slots) | options))
        self.drafter = None if text is None else FakeDrafter(self.target.ctx, share=text, seed=3)
        self.model = DraftModel(
            self.draft.ctx,
            n_slots=n_slots,
            n_ctx=n_ctx,
            n_batch=128,
            n_vocab=259,
            n_max=n_max,
            n_min=0,
            p_min=0.0,
            has_device=has_device,
        )
        assert self.h.core.draft_with(self.drafter, n_fixed, n_rollback, is_named=is_named)
        self.h.core.draft_model(self.model)

    def run(self, tasks):
        results = play(self.h, self.target, tasks)
        assert self.draft.bad_calls == 0
        assert self.model.n_failures == 0
        return results
