"""A scripted model whose answers a llamad writes: each request goes on to it with a grammar that allows only the text
of the script. So a real program's requests, and the calls that it gets, pass through the daemon."""

from __future__ import annotations

import json
from collections.abc import Sequence

from bench.sessions import dialects
from bench.sessions.script import Answer, Step
from bench.sessions.scripted_model import Recorded, ScriptedModel
from support.http_client import Client


class ForcedModel(ScriptedModel):
    """`models` gets this one, so that a test can look at it after a session."""

    def __init__(
        self, client: Client, models: list[ForcedModel], folder: str, steps: Sequence[Sequence[Step]]
    ) -> None:
        models.append(self)
        self._client = client
        self.refusals: list[bytes] = []
        super().__init__(folder, steps)

    def respond(self, path: str, data: bytes) -> tuple[int, str, bytes]:
        bare = path.partition("?")[0]
        if bare not in dialects.PATHS:
            return super().respond(path, data)
        body = json.loads(data)
        with self._lock:
            self.requests.append(Recorded(bare, body))
            answer = self._script.answer(dialects.read(bare, body))
        body["grammar"] = f"root ::= {json.dumps(_written(answer))}"
        reply = self._client.post(path, body)
        if reply.status != 200:
            self.refusals.append(reply.body)
        return reply.status, reply.headers["content-type"], reply.body


def _written(answer: Answer) -> str:
    """The answer as a model of the Hermes family writes it."""
    calls = (
        f"\n<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"
        for name, arguments in answer.calls
    )
    return answer.text + "".join(calls)
