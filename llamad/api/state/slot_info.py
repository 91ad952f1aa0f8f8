"""GET /v1/slots/{id_slot}/info: how many tokens a slot holds, and where its messages begin and end.

Runs on the event loop; the engine returns the tokens between two steps, even while the slot is busy.
"""

from __future__ import annotations

import msgspec

from llamad.api.service.served_model import ServedModel
from llamad.api.state import action as work
from llamad.api.state.action import Ask
from llamad.http.exchange import Exchange
from llamad.http.request import Response

INLINE_MAX = 4096  # the most tokens that are searched on the event loop


def messages_of(tokens: list[int], end_token: int) -> list[dict[str, int]]:
    """Return the messages as token ranges, each with its end-of-turn token; the last may have none."""
    messages: list[dict[str, int]] = []
    start = 0
    while start < len(tokens):
        try:
            end = tokens.index(end_token, start)
        except ValueError:
            end = len(tokens) - 1
        messages.append({"index": len(messages), "start": start, "end": end})
        start = end + 1
    return messages


def handle(served: ServedModel, exchange: Exchange) -> None:
    """GET /v1/slots/{id_slot}/info."""
    work.need_slots(served, "slots endpoint")
    ask = Ask(served, exchange, work.slot_of(served, exchange.request.params["id_slot"], "id_slot"))
    work.run(ask, _info(ask))


async def _info(ask: Ask) -> None:
    tokens = (await ask.states.look(ask.slot, owner=ask.owner)).tokens
    end_token = ask.served.turn_end
    if len(tokens) <= INLINE_MAX:
        body = _info_json(tokens, end_token)
    else:  # many tokens, and each of them may end a message
        body = await ask.aside(_info_json, tokens, end_token)
    ask.exchange.send(Response(200, body))


def _info_json(tokens: list[int], end_token: int) -> bytes:
    messages = messages_of(tokens, end_token)
    return msgspec.json.encode(
        {
            "n_tokens": len(tokens),
            "boundary_eot": end_token,
            "n_messages": len(messages),
            "messages": messages,
        }
    )
