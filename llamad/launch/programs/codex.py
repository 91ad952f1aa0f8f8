"""Codex, which speaks OpenAI's responses. Its settings are TOML values on the command line."""

from __future__ import annotations

import json

from llamad.launch.programs.program import PATIENCE_SECONDS, Program, Served, Setup

KEY = "LLAMAD_API_KEY"


def _setup(served: Served) -> Setup:
    settings: dict[str, str | int] = {
        "model": served.model,
        "model_provider": "llamad",
        "model_providers.llamad.name": "llamad",
        "model_providers.llamad.base_url": f"{served.url}/v1",
        "model_providers.llamad.wire_api": "responses",
        "model_providers.llamad.env_key": KEY,
        "model_providers.llamad.stream_idle_timeout_ms": PATIENCE_SECONDS * 1000,
    }
    if served.n_ctx:
        settings["model_context_window"] = served.n_ctx
    words = [word for name, value in settings.items() for word in ("-c", f"{name}={json.dumps(value)}")]
    return Setup({}, keys=(KEY,), arguments=tuple(words))


PROGRAM = Program("codex", "npm install -g @openai/codex", _setup)
