"""opencode, which gets a configuration in a variable; it is merged with the user's own, and wins. The user may have
chosen another model for an agent, so each of opencode's own agents gets the model, and no other provider is enabled."""

from __future__ import annotations

import json
from typing import Any

from llamad.launch.programs.program import PATIENCE_SECONDS, Program, Served, Setup

KEY = "LLAMAD_API_KEY"
PROVIDER = "llamad"
AGENTS = ("build", "plan", "general", "explore", "title", "summary", "compaction")


def _setup(served: Served) -> Setup:
    model: dict[str, Any] = {"name": served.model, "tool_call": True}
    if served.n_ctx:
        model["limit"] = {"context": served.n_ctx, "output": served.n_answer_max}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": PROVIDER,
        "options": {
            "baseURL": f"{served.url}/v1",
            "apiKey": f"{{env:{KEY}}}",
            "timeout": PATIENCE_SECONDS * 1000,
        },
        "models": {served.model: model},
    }
    name = f"{PROVIDER}/{served.model}"
    config = {
        "provider": {PROVIDER: provider},
        "enabled_providers": [PROVIDER],
        "disabled_providers": [],
        "model": name,
        "small_model": name,
        "agent": {agent: {"model": name} for agent in AGENTS},
        "autoupdate": False,
    }
    return Setup({"OPENCODE_CONFIG_CONTENT": json.dumps(config)}, keys=(KEY,))


PROGRAM = Program("opencode", "npm install -g opencode-ai", _setup)
