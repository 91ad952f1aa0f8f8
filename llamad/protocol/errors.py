"""Owns the errors that cross from an engine to the event loop. Must import nothing: it is imported first."""

from __future__ import annotations


class LoadError(Exception):
    """One line that says why the model cannot be served and what to do."""


class FileRefused(LoadError):
    """Because of a file that a flag names beside the model."""


class ComputeFailed(Exception):
    """llama.cpp failed to compute; `code` is its return code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


class Stopped(Exception):
    """The daemon is stopping; what waited for the engine is lost."""


class EngineFault(Exception):
    """The engine failed at one message, by a bug or because the system refused something; it goes on. Its log has the
    stack."""


class EngineEnded(Exception):
    """The engine's process has ended, or none is running."""
