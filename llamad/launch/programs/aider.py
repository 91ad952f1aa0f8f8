"""aider, which speaks OpenAI's chat completions, and gets the size of the context from a file. Variables in a project's
.env win over those of the process, but not over arguments and its own AIDER_OPENAI_API_KEY."""

from __future__ import annotations

import json

from llamad.launch.programs.program import PATIENCE_SECONDS, Program, Served, Setup


def _setup(served: Served) -> Setup:
    name = f"openai/{served.model}"
    environ = {
        "AIDER_TIMEOUT": str(PATIENCE_SECONDS),
        "AIDER_SHOW_MODEL_WARNINGS": "false",
        "AIDER_CHECK_UPDATE": "false",
        "AIDER_ANALYTICS": "false",
        # The map of the repository is near the front of the prompt. If it changed with each message, the server would
        # have to compute what follows again.
        "AIDER_MAP_REFRESH": "manual",
    }
    files = {}
    if served.n_ctx:
        about = {
            "max_input_tokens": served.n_ctx,
            "max_output_tokens": served.n_answer_max,
            "litellm_provider": "openai",
            "mode": "chat",
        }
        files["AIDER_MODEL_METADATA_FILE"] = json.dumps({name: about})
    models = ("--model", name, "--weak-model", name, "--editor-model", name)
    arguments = ("--openai-api-base", f"{served.url}/v1", *models)
    return Setup(environ, keys=("AIDER_OPENAI_API_KEY",), arguments=arguments, files=files)


PROGRAM = Program("aider", "uv tool install aider-chat", _setup)
