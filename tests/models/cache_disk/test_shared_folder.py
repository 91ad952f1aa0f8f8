"""One folder that several daemons use, or that is another one than at the start: nobody removes what others can use."""

import shutil
import time

from support.states.disk_cache import Disk
from support.states.fake_cache_memory import ses1, tokens_of

from llamad.models.cache_disk import turn_files
from llamad.models.cache_disk.turn_files import Answer

SYSTEM = tokens_of(1, 1024)


def test_two_daemons_that_write_the_same_block_at_once_both_read_it(tmp_path):
    """Each wrote the blocks of a common system prompt before it had seen those of the other. The second one's had another
    description, and the first one took them for broken ones and removed them, and so everything behind them."""
    first, second = Disk(tmp_path), Disk(tmp_path)
    for disk in (first, second):
        disk.cache.writer.step()
    prompts = [SYSTEM + tokens_of(10 + i, 600) for i in range(4)]
    ids = [first.memory.put(prompts[0])]
    first.cache.writer.step()  # neither looks at the folder again
    time.sleep(0.01)
    for prompt in prompts[1:]:
        second.memory.put(prompt, session=7)
    second.cache.writer.step()
    first.memory.drop(ids[0])
    first.cache.writer.step()
    assert bytes(first.fetch([*prompts[0], 1, 2]).blob) == ses1(prompts[0])
    for _ in range(3):
        first.step()
        second.step()
    assert (first.cache.counts.n_broken, second.cache.counts.n_broken) == (0, 0)
    for disk in (first, second):
        assert disk.cache.n_entries == 4
        assert all(disk.has([*prompt, 1]) for prompt in prompts)
