"""Claude Code, which speaks Anthropic's dialect. Variables in the user's settings win over those of the process, so our
key would go to another service or through a proxy that is set up there; --settings wins over both."""

from __future__ import annotations

import json

from llamad.launch.programs.program import PATIENCE_SECONDS, Program, Served, Setup

# The smallest window in which it compacts by itself. It keeps up to 33,000 tokens of a window free, which is most of a
# small one, so the counts of a server that is started for it are in the scale of the window that it is made for.
COMPACT_WINDOW_MIN = 100_000
WINDOW = 200_000
# What would send prompts and our key elsewhere, or add another key. An empty variable counts as none.
_ELSEWHERE = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_UNIX_SOCKET",
    "CLAUDE_CODE_USE_ANTHROPIC_AWS",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_GATEWAY",
    "CLAUDE_CODE_USE_MANTLE",
    "CLAUDE_CODE_USE_VERTEX",
)
_MODELS = (
    "ANTHROPIC_MODEL",
    "ANTHROPIC_SMALL_FAST_MODEL",
    "ANTHROPIC_DEFAULT_FABLE_MODEL",
    "ANTHROPIC_DEFAULT_OPUS_MODEL",
    "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL",
    "CLAUDE_CODE_SUBAGENT_MODEL",
)


def _setup(served: Served) -> Setup:
    environ = {
        "ANTHROPIC_BASE_URL": served.url,
        **dict.fromkeys(_MODELS, served.model),
        "API_TIMEOUT_MS": str(PATIENCE_SECONDS * 1000),
        # Neither comments nor pings count as events of a stream. Without any byte it ends after half an hour at most.
        "CLAUDE_STREAM_IDLE_TIMEOUT_MS": str(PATIENCE_SECONDS * 1000),
        # A line at the front of the prompt that differs in each session.
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    window = served.n_reported or served.n_ctx
    if window:
        environ["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = str(window)
    if window >= COMPACT_WINDOW_MIN:
        # Only with this it compacts before the context is full. Without, it does so when a prompt was too long.
        environ["CLAUDE_CODE_AUTO_COMPACT_WINDOW"] = str(window)
    if served.n_ctx:
        environ["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = str(served.n_answer_max)
    settings = json.dumps({"env": environ | dict.fromkeys(_ELSEWHERE, "") | served.proxy_variables})
    return Setup(
        environ,
        keys=("ANTHROPIC_AUTH_TOKEN",),
        unset=_ELSEWHERE,
        arguments=("--settings", settings),
    )


PROGRAM = Program("claude", "npm install -g @anthropic-ai/claude-code", _setup, report_context=WINDOW)
