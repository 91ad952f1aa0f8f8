"""The errors that cross from an engine to the event loop. Must import nothing, because it is imported first."""

from __future__ import annotations

# The end of a reason, which the engine replaces with what llama.cpp has said.
SEE_LOG = "the log above has llama.cpp's reason"


class LoadError(Exception):
    """The model cannot be served. str() is one line that says why and what to do."""


class MemoryShort(LoadError):
    """There is not enough memory for the model."""


class FileRefused(LoadError):
    """A file other than the model, such as an adapter, cannot be used."""


class ComputeFailed(Exception):
    """llama.cpp failed to compute; `code` is its return code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


class Stopped(Exception):
    """The daemon is stopping; requests that waited for the engine fail."""


class EngineFault(Exception):
    """The engine failed to handle a message, because of a bug or because the system refused something. It continues,
    and its log has the stack trace."""


class EngineEnded(Exception):
    """The engine's process has ended, or none is running."""
