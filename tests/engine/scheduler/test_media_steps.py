"""Rows of an image beside other slots on a GPU: tokens that are decoded for a batch's shape alone, and removed again,
keep away from a slot that is within an image."""

from types import SimpleNamespace

import numpy as np
import pytest
from support.engine_harness import Harness

from llamad.client.command import packed_run
from llamad.client.events import Done, Failed
from llamad.engine.testing.fake import Fake
from llamad.protocol.blobs import Blob
from llamad.protocol.messages import FAILURE_LOST
from llamad.protocol.row_ids import row_ids

N_ROWS, N_POS, ROW = 300, 20, -2  # and the fake's token of a row


class MediaHarness(Harness):
    def submit_image(
        self, before: bytes, after: bytes, *, is_grid: bool, name=b"", is_non_causal=False, **options
    ) -> int:
        """An image of rows with one number each, between two texts."""
        rows = np.ones(N_ROWS, np.float32).tobytes()
        grid = np.array(
            [[0] * N_ROWS, np.arange(N_ROWS) // N_POS, np.arange(N_ROWS) % N_POS], np.int32
        ).tobytes()
        self.blob = Blob(len(rows) + len(grid))
        self.blob.size = len(rows) + len(grid)
        memoryview(self.blob)[:] = rows + grid
        first = self.vocab.tokenize(before, True, True)
        ids = first + row_ids(name, 0, N_ROWS, N_POS if is_grid else N_ROWS, is_non_causal)
        ids += self.vocab.tokenize(after, False, True)
        run = packed_run(self.blob.id, 0, len(rows) if is_grid else -1, len(first) // 4, N_ROWS)
        return self.submit(ids=ids, rows=SimpleNamespace(packed=run), **options)

    def check_cells(self) -> None:
        for slot in range(self.n_slots):
            cells = [token for _, token in self.fake.cells(slot)]
            assert cells == [max(token, ROW) for token in self.core.slot_tokens(slot)], f"slot {slot}"


def make(n_slots: int, **more) -> MediaHarness:
    fake = Fake(n_ctx=2048, n_batch=512, device_us=200)
    options = {"n_ctx": 2048, "n_batch": 512, "has_device": True, "n_row": 1, **more}
    return MediaHarness(fake, n_slots=n_slots, **options)


@pytest.mark.parametrize("is_grid", [False, True])
def test_an_image_between_slots_that_write_stays_whole(is_grid):
    with make(3) as h:
        others = [h.submit(b"%d writes" % i, id_slot=i, n_predict=200) for i in (0, 2)]
        for task in others:
            h.wait_first(task)
        for i in range(4):
            task = h.submit_image(b"%d" % i, b"after", is_grid=is_grid, id_slot=1, n_predict=4)
            h.wait(task)
            assert h.text(task) == b"stuv"
        h.wait(*others)
        assert sum(step.n_fillers for step in h.steps) > 0, "nothing was decoded for the shape alone"


@pytest.mark.parametrize("is_grid", [False, True])
def test_an_image_between_prompts_stays_whole(is_grid):
    with make(4) as h:
        for i in range(3):
            h.fake.block(True)
            first = h.submit(b"first", id_slot=3, n_predict=1)
            h.catch()
            # From the second time on, the slot holds what stands before the image.
            tasks = [
                h.submit_image(b"before", b"after", name=b"%d" % i, is_grid=is_grid, id_slot=1, n_predict=4)
            ]
            tasks += [h.submit(b"%d%d" % (i, k) + b"x" * (40 + k), id_slot=k, n_predict=1) for k in (0, 2)]
            h.fake.block(False)
            h.wait(first, *tasks)
            assert h.text(tasks[0]) == b"stuv"
        assert sum(step.n_fillers for step in h.steps) > 0, "nothing was decoded for the shape alone"


def test_rows_that_cannot_be_split_join_no_step_that_they_would_make_too_long():
    """A stream waited for the prompts of others and for a whole image in one step."""
    n_max = N_ROWS + 20
    with make(3, has_device=False, step_tokens_max=n_max) as h:
        stream = h.submit(b"writes", id_slot=0, n_predict=1500)
        h.wait_first(stream)
        image = {"is_grid": False, "is_non_causal": True, "id_slot": 1, "n_predict": 1}
        h.wait(
            h.submit_image(b"before", b"after", name=b"a", **image)
        )  # the slot keeps what stands before the image
        h.fake.block(True)
        h.catch()
        tasks = [
            h.submit(b"x" * 40, id_slot=2, n_predict=1),
            h.submit_image(b"before", b"after", name=b"b", **image),
        ]
        h.fake.block(False)
        h.wait(stream, *tasks)
        assert max(step.n_tokens + step.n_media for step in h.steps) <= n_max
        assert h.end(tasks[1]).n_slot_tokens > N_ROWS


@pytest.mark.parametrize("code", [1, -1, -3])
def test_rows_that_cannot_be_decoded_cost_no_other_task(code):
    """No room: they are tried again in smaller pieces. Not taken: their task fails. Anything else: all are computed
    again."""
    with make(3) as h:
        others = [h.submit(b"%d" % i, id_slot=i, n_predict=100) for i in (0, 2)]
        for task in others:
            h.wait_first(task)
        h.fake.fail_media(code)
        task = h.submit_image(b"before", b"after", is_grid=False, id_slot=1, n_predict=4)
        h.wait(task, *others)
        assert isinstance(h.end(task), Failed if code == -1 else Done)
        assert h.text(task) == b"stuv" if code != -1 else h.end(task).failure == FAILURE_LOST
        for i, other in zip((0, 2), others, strict=True):
            assert h.text(other) == bytes(49 + i + k for k in range(100))
        assert h.fake.n_rebuilds == (code == -3)
