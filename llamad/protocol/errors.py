"""Owns the errors that cross from an engine to the front. Must import nothing: the program begins with it."""

from __future__ import annotations


class LoadError(Exception):
    """One line that says why the model cannot be served and what to do."""


class ComputeFailed(Exception):
    """llama.cpp could not compute; its code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


class Stopped(Exception):
    """The engine has ended, and with it everything that waited for it."""
