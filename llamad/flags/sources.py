"""The sources of settings: the command line, the environment and --env-file, which are read at start-up and on reload.

Runs on the main thread, and on a reload in a thread. Must not print or exit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llamad.flags import env_file
from llamad.flags.parse import FlagError, Parsed, parse, scan
from llamad.flags.table import TABLE
from llamad.flags.types.flag import Action

ENV_FILE = "LLAMA_ARG_ENV_FILE"


class Sources:
    """A command line and an environment, which stay the same, and a file, which may change."""

    def __init__(self, argv: Sequence[str], environ: Mapping[str, str]) -> None:
        self._argv = tuple(argv)
        self._environ = dict(environ)
        self.parsed: Parsed | None = None  # result of the last read()
        self.is_router = False  # the daemon serves many models; command_line.py decides it at the start

    def without(self, word: str) -> Sources:
        """Return the same sources without a word of the command line."""
        return Sources([one for one in self._argv if one != word], self._environ)

    def read(self) -> Parsed:
        """Read and parse all sources. Raises FlagError."""
        path = self._path()
        try:
            lines = env_file.read(path) if path is not None else None
        except ValueError as error:
            raise FlagError(str(error)) from None
        self.parsed = parse(self._argv, self._environ, lines)
        return self.parsed

    def _path(self) -> str | None:
        """Return the path of --env-file, or None if there is none or the command line does not run the server."""
        settings = scan(self._argv, TABLE)
        if isinstance(settings, Action):
            return None
        named = [one.value for one in settings if one.flag.dest == "env_file"]
        return named[-1] if named else self._environ.get(ENV_FILE) or None
