"""The first decodes of a context, before any request: they leave nothing, and try every number of rows for drafts."""

import pytest
from support.engine_harness import Harness

from llamad.engine.testing.fake import Fake


@pytest.mark.parametrize(
    ("has_drafts", "n_batch", "n_decodes", "n_tokens"),
    [(False, 64, 1, 1), (True, 64, 7, 127), (True, 40, 6, 63), (True, 128, 7, 127)],
)
def test_a_warm_up_leaves_nothing(has_drafts, n_batch, n_decodes, n_tokens):
    """A decode has at most n_batch tokens."""
    fake = Fake(n_ctx=512, n_batch=n_batch)
    engine = Harness(fake, n_batch=n_batch)
    assert engine.core.warm_up(1, has_drafts) == 0
    assert (fake.n_decodes, fake.n_tokens_decoded) == (n_decodes, n_tokens)
    assert fake.cells(0) == []
    with engine:
        pass
