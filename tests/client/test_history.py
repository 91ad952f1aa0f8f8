"""What the front knows of a task that another engine is to continue, and what it refuses of an engine that was taken
over."""

import struct

import pytest
from support.engine_harness import GREEDY

from llamad.client.command import Command
from llamad.client.history import History
from llamad.client.task import RequestContext, Task
from llamad.client.text_event import TextEvent
from llamad.options.table import Options


def event(tokens, n_ahead=0, n_kept=0, n_discarded=0, ahead=b"", n_xtc=0):
    point = struct.pack("<3iIiff", n_ahead, n_kept, n_discarded, 4, n_xtc, 0.0, 0.0) + bytes(4 * n_xtc)
    return TextEvent(tokens, b"ab", 1, 0, 0, 0, [], 0, 0, point, ahead)


def history(*events):
    made = History()
    for one in events:
        made.add(one)
    return made


def task(n_probs=0):
    return Task(RequestContext("request"), struct.pack("<3i", 1, 2, 3), GREEDY, Options(n_probs=n_probs))


def test_tokens_add_up_and_the_last_event_says_what_is_held_back():
    made = history(
        event([4, 5], 2, ahead=struct.pack("<2i", 6, 7)), event([6], 1, ahead=struct.pack("<i", 7))
    )
    assert made.n_drawn == 4
    assert made.can_go_on
    Command(task(), made)


def test_a_task_without_text_can_begin_again():
    assert History().can_go_on
    assert History().n_drawn == 0
    Command(task(), History())


def test_after_the_last_text_nothing_goes_on():
    assert not history(event([4]), event([5], -1)).can_go_on


@pytest.mark.parametrize(
    ("last", "n_probs"),
    [
        (event([4], 1), 0),  # no token is there
        (event([4], 1, ahead=bytes(8)), 0),
        (event([4], 1, ahead=bytes(4)), 2),  # no probabilities are
        (event([4], -1), 0),
        (event([4], n_kept=-1), 0),
        (event([4], n_discarded=-1), 0),
        (event([4], n_kept=2, n_discarded=1), 0),  # more than there is
        (event([4], n_kept=1 << 30, n_discarded=1 << 30), 0),
        (event([4], n_xtc=40), 0),
    ],
)
def test_what_no_engine_writes_is_refused(last, n_probs):
    with pytest.raises(ValueError, match="the task's"):
        Command(task(n_probs), history(last))
