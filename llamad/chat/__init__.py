"""Chat: messages, tools and schemas to prompts and grammars, and model output back. Knows nothing of HTTP."""
