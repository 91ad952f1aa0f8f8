"""What a full context keeps when it is shifted."""

import pytest
from support.engine_harness import Harness

from llamad.engine.testing.fake import Fake

N_CTX = 64


@pytest.mark.parametrize("add_bos", [False, True])
@pytest.mark.parametrize(("n_keep", "n_kept"), [(0, 0), (5, 5), (-1, 21)])
def test_n_keep_counts_without_bos(add_bos, n_keep, n_kept):
    """As in llama-server, which adds BOS to the length of the prompt as well: with -1 the first token of the answer
    stays, too, if the vocabulary adds BOS."""
    prompt = bytes(range(100, 120))
    with Harness(Fake(n_ctx=N_CTX), n_slots=1, n_ctx=N_CTX, add_bos=add_bos) as h:
        task = h.submit(prompt, n_predict=60, n_keep=n_keep)
        h.wait(task)
        tokens = h.core.slot_tokens(0)
        text = prompt + bytes(120 + i for i in range(60))
        n_same = next(i for i in range(1, len(tokens)) if tokens[i] != 3 + text[i - 1])
        assert n_same == max(n_kept + add_bos, 1)
