"""The control socket of an engine that has died, before the front has seen the end of its process."""

from __future__ import annotations

import asyncio
import socket

import pytest
import uvloop

from llamad.client.control import Control
from llamad.protocol.control_messages import Share
from llamad.protocol.errors import EngineEnded


async def dead() -> Control:
    """Return the control of an engine whose end of the socket is closed."""
    ours, theirs = socket.socketpair()
    lost = asyncio.Event()
    control = Control(lambda _: None, lambda _: None, lost.set)
    await asyncio.get_running_loop().create_unix_connection(lambda: control, sock=ours)
    theirs.close()
    await asyncio.wait_for(lost.wait(), 30)
    await asyncio.sleep(0.01)  # uvloop closes the handle after that
    return control


def test_a_message_is_dropped():
    """It raised an error. So when an engine died, requests that another model was about to admit were lost: the fleet
    had told the dead one its share of the machine, and came no further."""

    async def run() -> None:
        (await dead()).send(Share(1, 1, 1))

    uvloop.run(run())


def test_a_question_fails_when_the_process_has_ended():
    async def run() -> None:
        control = await dead()
        question = asyncio.ensure_future(control.compile('root ::= "a"', 1000))
        await asyncio.sleep(0)
        control.close()
        with pytest.raises(EngineEnded):
            await asyncio.wait_for(question, 30)

    uvloop.run(run())
