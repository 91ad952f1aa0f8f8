"""Schemas and tools to grammars in a child process, which may be stopped."""
