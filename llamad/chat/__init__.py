"""Chat: turns messages, tools and schemas into prompts and grammars, and parses model output. Knows nothing of HTTP."""
