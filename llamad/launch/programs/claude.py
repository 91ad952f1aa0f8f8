"""Claude Code, which speaks Anthropic's dialect. Variables in the user's settings win over those of the process, so our
key would go to another service that is set up there; --settings wins over both."""

from __future__ import annotations

import json

from llamad.launch.programs.program import PATIENCE_SECONDS, Program, Served, Setup

# Its limit for a stream without events cannot be set higher.
STREAM_PATIENCE_SECONDS = 1800


def _setup(served: Served) -> Setup:
    environ = {
        "ANTHROPIC_BASE_URL": served.url,
        "ANTHROPIC_MODEL": served.model,
        "ANTHROPIC_DEFAULT_OPUS_MODEL": served.model,
        "ANTHROPIC_DEFAULT_SONNET_MODEL": served.model,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": served.model,
        "CLAUDE_CODE_SUBAGENT_MODEL": served.model,
        "API_TIMEOUT_MS": str(PATIENCE_SECONDS * 1000),
        "CLAUDE_STREAM_IDLE_TIMEOUT_MS": str(STREAM_PATIENCE_SECONDS * 1000),
        # A line at the front of the prompt that differs in each session.
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    if served.n_ctx:
        environ["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = str(served.n_ctx)
        environ["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = str(served.n_answer_max)
    settings = json.dumps({"env": environ})
    return Setup(
        environ,
        keys=("ANTHROPIC_AUTH_TOKEN",),
        unset=("ANTHROPIC_API_KEY",),
        arguments=("--settings", settings),
    )


PROGRAM = Program("claude", "npm install -g @anthropic-ai/claude-code", _setup)
