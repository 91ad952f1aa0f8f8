"""Qwen Code, which speaks OpenAI's chat completions."""

from __future__ import annotations

from llamad.launch.programs.program import Program, Served, Setup


def _setup(served: Served) -> Setup:
    environ = {"OPENAI_BASE_URL": f"{served.url}/v1", "OPENAI_MODEL": served.model}
    return Setup(environ, keys=("OPENAI_API_KEY",), arguments=("--auth-type", "openai"))


PROGRAM = Program("qwen", "npm install -g @qwen-code/qwen-code", _setup)
