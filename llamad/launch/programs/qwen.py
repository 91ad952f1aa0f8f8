"""Qwen Code, which speaks OpenAI's chat completions. A model in the user's settings wins over variables, and brings the
address of its provider with it, but arguments win over both."""

from __future__ import annotations

from llamad.launch.programs.program import PATIENCE_SECONDS, Program, Served, Setup


def _setup(served: Served) -> Setup:
    arguments = ("--auth-type", "openai", "--openai-base-url", f"{served.url}/v1", "--model", served.model)
    environ = {"QWEN_CODE_API_TIMEOUT_MS": str(PATIENCE_SECONDS * 1000)}
    return Setup(environ, keys=("OPENAI_API_KEY",), arguments=arguments)


PROGRAM = Program("qwen", "npm install -g @qwen-code/qwen-code", _setup)
