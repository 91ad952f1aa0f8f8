"""opencode, which gets a configuration in a variable; it is merged with the user's own."""

from __future__ import annotations

import json
from typing import Any

from llamad.launch.programs.program import PATIENCE_SECONDS, Program, Served, Setup

KEY = "LLAMAD_API_KEY"


def _setup(served: Served) -> Setup:
    model: dict[str, Any] = {"name": served.model, "tool_call": True}
    if served.n_ctx:
        model["limit"] = {"context": served.n_ctx, "output": served.n_answer_max}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "llamad",
        "options": {
            "baseURL": f"{served.url}/v1",
            "apiKey": f"{{env:{KEY}}}",
            "timeout": PATIENCE_SECONDS * 1000,
        },
        "models": {served.model: model},
    }
    name = f"llamad/{served.model}"
    config = {"provider": {"llamad": provider}, "model": name, "small_model": name, "autoupdate": False}
    return Setup({"OPENCODE_CONFIG_CONTENT": json.dumps(config)}, keys=(KEY,))


PROGRAM = Program("opencode", "npm install -g opencode-ai", _setup)
