"""Converts schemas and tools to grammars in a child process, which can be killed."""
