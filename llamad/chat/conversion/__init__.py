"""Converts schemas and tools to grammars in a child process that can be killed."""
