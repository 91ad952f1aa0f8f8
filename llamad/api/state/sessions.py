"""GET /sessions and POST /sessions/{id_session}: states that the server keeps under a number, and their archives.

Runs on the event loop; workers handle files, the engine handles the state itself. A session belongs to its API key.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from llamad.api.request.body import Body
from llamad.api.request.errors import ApiError, bad
from llamad.api.service.served_model import ServedModel
from llamad.api.state import action as work
from llamad.api.state.action import Ask
from llamad.api.state.slots import read_file
from llamad.client.sessions import Name, Session
from llamad.http.exchange import Exchange
from llamad.http.request import Request, Response

ACTIONS = ("save", "restore", "remove")
ID_MAX = 2**63 - 1


class ArchiveRequest(Struct):
    file: str | None = None


_BODY = Body(ArchiveRequest)


def listing(served: ServedModel, exchange: Exchange) -> None:
    """GET /sessions: the sessions of the request's key."""
    work.need_slots(served, "sessions")
    served.described_states()
    sessions = [
        {"id": one.id, "size": one.size, "created_at": one.created_at, "updated_at": one.updated_at}
        for one in served.sessions.of_key(exchange.request.key_name)
    ]
    exchange.send(Response(200, msgspec.json.encode(sessions)))


def _id_of(request: Request) -> int:
    value = request.params["id_session"]
    id_session = int(value) if value.isascii() and value.isdigit() and len(value) < 40 else -1
    if not 0 <= id_session <= ID_MAX:
        raise bad(f'"id_session" must be an integer, 0 to {ID_MAX}')
    return id_session


def handle(served: ServedModel, exchange: Exchange) -> None:
    """POST /sessions/{id_session}?action=..."""
    request = exchange.request
    action = work.action_of(request, ACTIONS)
    work.need_slots(served, "sessions")
    id_session = _id_of(request)
    slot = -1
    if action != "remove":
        slot = work.slot_of(served, request.query.get("slot", ""), "slot")
    name = (request.key_name, id_session)
    ask = Ask(served, exchange, slot)
    if action == "save":
        work.run(ask, _save(ask, name))
        return
    archive = _BODY.decode(request.body).file if len(request.body) else None
    # An empty name is a mistake. If it meant "no file", the session would be removed without its archive.
    file = "" if archive is None else work.check_file("file", archive)
    if file:
        work.need_files(served, '"file"')
    if action == "remove":
        work.run(ask, _remove(ask, name, file))
    else:
        work.run(ask, _restore_file(ask, id_session, file) if file else _restore(ask, name))


def _session(ask: Ask, name: Name) -> Session:
    session = ask.served.sessions.find(name)
    if session is None:
        raise ApiError(404, f"There is no session {name[1]}")
    return session


async def _save(ask: Ask, name: Name) -> None:
    sessions = ask.served.sessions
    if sessions.bytes_max == 0:
        raise ApiError(
            501, "This server does not support sessions. Start it with a larger `--sessions-max-bytes`"
        )
    work.need_layout(ask.states)
    place = sessions.reserve(name, ask.expected_bytes())
    try:
        saved = await ask.states.save(ask.slot, nowait=ask.nowait, owner=ask.owner)
        async with sessions.turn(name):
            session = place.put(saved.blob, saved.n_tokens)
    finally:
        place.drop()
    ask.send(
        {
            "id_session": name[1],
            "id_slot": ask.slot,
            "n_tokens": session.n_tokens,
            "n_bytes": session.size,
            "t_ms": ask.t_ms(),
            "stall_ms": saved.stall_us / 1e3,
        }
    )


async def _restore(ask: Ask, name: Name) -> None:
    sessions = ask.served.sessions
    session = _session(ask, name)
    with sessions.pinned(session) as blob:
        restored = await ask.states.restore(ask.slot, blob, nowait=ask.nowait, owner=ask.owner)
    sessions.restored(name, session)
    _send_restored(ask, name[1], restored.n_bytes, restored.stall_us)


async def _restore_file(ask: Ask, id_session: int, file: str) -> None:
    """Restore from an archive or a slot's file. The number of the session is only echoed."""
    blob, n_bytes = await read_file(ask, file)
    restored = await ask.states.restore(ask.slot, blob, nowait=ask.nowait, owner=ask.owner)
    ask.served.sessions.n_restores += 1
    _send_restored(ask, id_session, n_bytes, restored.stall_us)


def _send_restored(ask: Ask, id_session: int, n_bytes: int, stall_us: int) -> None:
    ask.send(
        {
            "id_session": id_session,
            "id_slot": ask.slot,
            "n_bytes_read": n_bytes,
            "success": True,
            "t_ms": ask.t_ms(),
            "stall_ms": stall_us / 1e3,
        }
    )


async def _remove(ask: Ask, name: Name, file: str) -> None:
    """Remove a session. With a file, it is removed only once the archive is complete."""
    sessions = ask.served.sessions
    reply: dict[str, object] = {"id_session": name[1], "removed": True}
    async with sessions.turn(name):
        session = _session(ask, name)
        if file:
            files = work.need_files(ask.served, '"file"')
            with sessions.pinned(session) as blob:
                n_bytes = await ask.aside(files.write, ask.key, file, [memoryview(blob)])
            reply |= {"file": file, "n_bytes": n_bytes}
        sessions.remove(name)
    ask.send(reply)
