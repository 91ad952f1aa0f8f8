"""Loads GGUFs and writes a few tokens with each, where that may crash: in children of a helper process that imported
everything and started nothing, so that a fork is safe and quick."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOADED, REFUSED, RAISED = 0, 3, 4
SECONDS = 20
MEMORY_BYTES = 12 << 30


@dataclass(frozen=True)
class Outcome:
    code: int  # one of the above, or minus the signal
    log: str

    @property
    def reason(self) -> str:
        """Of a refusal."""
        return self.log.rpartition("REFUSED ")[2].strip()


def _use(path: str, flags: tuple[str, ...]) -> int:
    from llamad.protocol.errors import LoadError
    from support.hosted_model import Hosted

    try:
        hosted = Hosted(path, *flags)
    except LoadError as error:
        print("REFUSED", error)
        return REFUSED
    with hosted:
        vocab = hosted.vocab
        try:
            tokens = memoryview(vocab.tokenize(b"Hello world\n ab", True, True)).cast("i").tolist()
        except ValueError:  # a vocabulary in which the text cannot be written
            tokens = [1]
        hosted.run(hosted.write(0, tokens or [1], 3))
    return LOADED


def _in_child(path: str, flags: tuple[str, ...]) -> dict[str, Any]:
    """The child has a limit of memory, and of time: then its signal is SIGALRM."""
    with tempfile.TemporaryFile() as log:
        pid = os.fork()
        if pid == 0:
            code = RAISED
            try:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
                os.environ["GGML_NO_BACKTRACE"] = "1"
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
                signal.alarm(SECONDS)
                sys.stdout = os.fdopen(1, "w", closefd=False)
                code = _use(path, flags)
            except BaseException:
                traceback.print_exc(file=sys.stdout)
            sys.stdout.flush()
            os._exit(code)
        _, status = os.waitpid(pid, 0)
        log.seek(0)
        text = log.read().decode(errors="replace")
    code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    return {"code": code, "log": text[-4000:]}


def _serve() -> None:
    import support.hosted_model  # noqa: F401  once, for all children

    for line in sys.stdin:
        path, *flags = json.loads(line)
        print(json.dumps(_in_child(path, tuple(flags))), flush=True)


class Loader:
    """The helper process."""

    def __init__(self) -> None:
        root = Path(__file__).parents[2]
        named = filter(None, [os.environ.get("PYTHONPATH")])  # first: the modules under a sanitizer are there
        paths = os.pathsep.join([*named, str(root / "tests"), str(root)])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.gguf_loading"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": paths},
        )

    def load(self, path: str | Path, *flags: str) -> Outcome:
        """What becomes of the file."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(path), *flags]) + "\n")
        self._process.stdin.flush()
        return Outcome(**json.loads(self._process.stdout.readline()))

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(SECONDS + 10)


if __name__ == "__main__":
    _serve()
