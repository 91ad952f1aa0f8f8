"""POST /slots/{id_slot}: moves a slot's state to a file or the client and back, returns its tokens, shifts it.

Runs on the event loop; workers handle files, base64 and checks, the engine handles the state itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from llamad.api.request.body import Body
from llamad.api.request.errors import bad
from llamad.api.service.served_model import ServedModel
from llamad.api.state import action as work
from llamad.api.state.action import Ask, Held
from llamad.client.slot_states import States
from llamad.client.state_files import StateFiles, check_name
from llamad.http.exchange import Exchange
from llamad.http.request import Request, Response
from llamad.options.ranges import Count, Many
from llamad.protocol.blobs import Blob
from llamad.ses1 import ses1

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

RESTORE_STATE = "restore-state"
OCTETS = "application/octet-stream"
FILE_HEAD = 12  # bytes in llama.cpp's slot file before its tokens


class FileRequest(Struct):
    filename: str = ""


class ShiftRequest(Struct):
    n_keep: Count
    n_discard: Many


_FILE, _SHIFT = Body(FileRequest), Body(ShiftRequest)


def is_raw(request: Request) -> bool:
    """Whether the body is the raw blob, by its Content-Type."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == OCTETS


def judge(served: ServedModel, request: Request) -> tuple[str, int]:
    """Return the action and the slot, from the request's head alone. Raises ApiError."""
    action = work.action_of(request, tuple(ACTIONS))
    what = f"the action {action}"
    if action in ("save", "restore"):
        work.need_files(served, what)
    elif action != "erase" or served.files is None:
        work.need_slots(served, what)
    return action, work.slot_of(served, request.params["id_slot"], "id_slot")


def handle(served: ServedModel, exchange: Exchange) -> None:
    """POST /slots/{id_slot}?action=..."""
    action, slot = judge(served, exchange.request)
    ask = Ask(served, exchange, slot)
    work.run(ask, ACTIONS[action](ask))


def _filename(ask: Ask) -> str:
    name = work.check_file("filename", _FILE.decode(ask.exchange.request.body).filename)
    check_name(name)
    return name


async def _save(ask: Ask) -> None:
    """Save the slot to a file in llama.cpp's own format."""
    files, name = work.need_files(ask.served, "files"), _filename(ask)
    saved = await work.save(ask, 1)
    n_bytes = await ask.aside(_write_slot_file, files, ask.key, name, saved.blob)
    ask.send(
        {
            "id_slot": ask.slot,
            "filename": name,
            "n_saved": saved.n_tokens,
            "n_written": n_bytes,
            "timings": {"save_ms": ask.t_ms()},
            "stall_ms": saved.stall_us / 1e3,
        }
    )


def _write_slot_file(files: StateFiles, key: str, name: str, blob: Blob) -> int:
    pieces = (ses1.file_head(blob), memoryview(blob)[ses1.kv_offset(blob) :])
    return files.write(key, name, pieces)


async def read_file(ask: Ask, name: str) -> tuple[Blob, int]:
    """Return a state from a file of either format, and the size of the file."""
    files = work.need_files(ask.served, "files")
    work.need_layout(ask.states)
    bytes_max = ask.states.bytes_max + work.FILE_HEAD_SPARE
    size = await ask.aside(files.size, ask.key, name)
    work.take_room(ask.served, ask.exchange.request, min(size, bytes_max))
    return await ask.aside(_read_state, files, ask.key, name, bytes_max, ask.states)


def _read_state(files: StateFiles, key: str, name: str, bytes_max: int, states: States) -> tuple[Blob, int]:
    """Return a state and the size of its file. The KV data is read directly into its place in the blob."""
    with files.open(key, name, bytes_max) as file:
        front = file.read(ses1.file_front(file.read(FILE_HEAD), file.size, states.n_ctx))
        blob, at = ses1.from_front(front, file.size, states.arena)
        file.read_into(memoryview(blob)[at:], len(front))
        return blob, file.size


async def _restore(ask: Ask) -> None:
    name = _filename(ask)
    blob, n_bytes = await read_file(ask, name)
    restored = await ask.states.restore(ask.slot, blob, nowait=ask.nowait, owner=ask.owner)
    ask.send(
        {
            "id_slot": ask.slot,
            "filename": name,
            "n_restored": restored.n_tokens,
            "n_read": n_bytes,
            "timings": {"restore_ms": ask.t_ms()},
            "stall_ms": restored.stall_us / 1e3,
        }
    )


async def _erase(ask: Ask) -> None:
    n_erased = await ask.states.erase(ask.slot, nowait=ask.nowait, owner=ask.owner)
    ask.send({"id_slot": ask.slot, "n_erased": n_erased})


async def _save_state(ask: Ask) -> None:
    """Send the slot's state to the client: the raw blob, or JSON with base64."""
    octets = wants_octets(ask.exchange.request.headers.get("accept", ""))
    saved = await work.save(ask, 1 if octets else 7 / 3)
    if octets:
        stall = (("X-Stall-Ms", f"{saved.stall_us / 1e3:g}"),)
        ask.exchange.send(Response(200, memoryview(saved.blob), OCTETS, stall))
        return
    fields = {
        "id_slot": ask.slot,
        "n_tokens": saved.n_tokens,
        "n_bytes": saved.blob.size,
        "t_ms": ask.t_ms(),
        "stall_ms": saved.stall_us / 1e3,
    }
    head = msgspec.json.encode(fields)[:-1] + b',"state":"'
    answer = await ask.aside(ses1.encode_json, saved.blob, head, b'"}')
    ask.exchange.send(Response(200, memoryview(answer)))


async def _restore_state(ask: Ask) -> None:
    blob = await _received(ask)
    n_bytes = blob.size
    restored = await ask.states.restore(ask.slot, blob, nowait=ask.nowait, owner=ask.owner)
    ask.send(
        {
            "id_slot": ask.slot,
            "n_bytes_read": n_bytes,
            "success": True,
            "t_ms": ask.t_ms(),
            "stall_ms": restored.stall_us / 1e3,
        }
    )


async def _received(ask: Ask) -> Blob:
    """Return the blob that the body is or contains. A body that starts like a blob is one, whatever its
    Content-Type."""
    request = ask.exchange.request
    held = request.buffer
    if not isinstance(held, Held) or held.blob is None:
        raise bad('The body must be a state: the raw blob, or JSON with base64 in "state"')
    blob, n_bytes = held.blob, len(request.body)
    is_blob = is_raw(request) or bytes(request.body[:4]) == b"SES1"
    request.body = b""  # releases the view, so that the blob can be resized below
    blob.size = n_bytes
    if is_blob:
        return blob
    return await ask.aside(ses1.decode_json, memoryview(blob), ask.states.bytes_max, ask.states.arena)


async def _tokens(ask: Ask) -> None:
    contents = await ask.states.tokens(ask.slot, nowait=ask.nowait, owner=ask.owner)
    ask.send(
        {
            "id_slot": ask.slot,
            "n_tokens": len(contents.tokens),
            "tokens": contents.tokens,
            "n_prompt_tokens_processed": contents.n_processed,
        }
    )


async def _context_shift(ask: Ask) -> None:
    request = _SHIFT.decode(ask.exchange.request.body)
    n_tokens = await ask.states.shift(
        ask.slot, request.n_keep, request.n_discard, nowait=ask.nowait, owner=ask.owner
    )
    ask.send({"success": True, "new_n_tokens": n_tokens})


ACTIONS: dict[str, Callable[[Ask], Coroutine[Any, Any, None]]] = {
    "save": _save,
    "restore": _restore,
    "erase": _erase,
    "save-state": _save_state,
    RESTORE_STATE: _restore_state,
    "tokens": _tokens,
    "context-shift": _context_shift,
}


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            try:
                q = float(value)
            except ValueError:
                return 0.0
            return q if 0.0 <= q <= 1.0 else 0.0
    return 1.0


def wants_octets(accept: str) -> bool:
    """Return whether the Accept header prefers application/octet-stream to JSON, by weight and then by specificity."""
    ranges: dict[str, float] = {}
    for part in accept.split(","):
        kind, *parameters = part.split(";")
        ranges[kind.strip().lower()] = _weight(parameters)

    def rank(subtype: str) -> tuple[float, int]:
        for exactness, kind in ((2, f"application/{subtype}"), (1, "application/*"), (0, "*/*")):
            if kind in ranges:
                return ranges[kind], exactness
        return 0.0, 0

    octets = rank("octet-stream")
    return octets[0] > 0 and octets > rank("json")
