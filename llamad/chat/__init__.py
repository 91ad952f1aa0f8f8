"""Chat: what turns messages, tools and schemas into prompts and grammars. It knows nothing of HTTP."""
