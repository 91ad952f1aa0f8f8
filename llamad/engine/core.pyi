from llamad.engine.drafts.draft_model import DraftModel
from llamad.engine.drafts.drafts import Drafter
from llamad.protocol.cache_memory import CacheMemory
from llamad.protocol.channel import Descriptors, Link
from llamad.ses1.ses1 import Layout
from llamad.tokenizer.vocab import Vocab

class Core:
    link: Link
    descriptors: Descriptors
    n_sampler_threads: int
    def __init__(
        self,
        vocab: Vocab,
        ctx: int,
        *,
        descriptors: Descriptors | None = None,
        n_slots: int,
        n_ctx: int,
        n_cells: int,
        n_batch: int,
        n_ubatch: int,
        n_swa: int,
        add_bos: bool,
        similarity_min: float,
        step_tokens_max: int,
        n_sampler_threads: int,
        cont_batching: bool,
        tracing: bool,
        can_share: bool = True,
        group_n: int = 1,
        group_w: int = 1,
        grammar_work: int = -1,
        has_device: bool = False,
        api_only: bool = False,
        cache_bytes: int = 0,
        n_text_max: int = 0,
        n_checkpoints: int = 0,
        checkpoint_min_step: int = 0,
        checkpoint_bytes: int = 0,
        cache_idle: bool = True,
        n_row: int = 0,
        n_window: int = 0,
        memory: CacheMemory | None = None,
        spare_seq: int = -1,
    ) -> None: ...
    @property
    def takes_parts(self) -> bool: ...
    def warm_up(self, token: int, has_drafts: bool = False) -> int: ...
    def adopt(self, layout: Layout | None, fingerprint: bytes) -> int: ...
    def tend(self) -> int: ...
    def prepare_pages(self) -> None: ...
    def end_tending(self) -> None: ...
    def run(self) -> bool: ...
    def probe(self, token: int) -> list[bytes]: ...
    def allow_copies(self, smallest: bytes, margin: int) -> None: ...
    def share(self, n_threads: int, n_threads_batch: int, cache_bytes: int) -> None: ...
    def n_idle(self) -> int: ...
    def draft_with(
        self, drafter: Drafter | None, n_fixed: int, n_rollback: int = 0, *, is_named: bool = False
    ) -> bool: ...
    def draft_model(self, model: DraftModel, shares_threads: bool = True) -> None: ...
    def check_integrity(self) -> int: ...
    def slot_tokens(self, index: int) -> list[int]: ...
