"""Checks the first bytes of a model file, before an engine is started for it. Reads four bytes; any thread."""

from __future__ import annotations

import os
import stat

MAGIC = b"GGUF"


def refusal(path: str, flag: str = "-m") -> str | None:
    """Return why the file that the flag names cannot be a model, or None if it may be one."""
    try:
        # O_NONBLOCK, because opening a pipe without a writer would block.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            is_file = stat.S_ISREG(os.fstat(fd).st_mode)
            magic = os.read(fd, len(MAGIC)) if is_file else b""
        finally:
            os.close(fd)
    except OSError as error:
        return f"{path}: {error.strerror}; {flag} names a GGUF file"
    if not is_file:
        return f"{path} is not a regular file; {flag} names a GGUF file"
    if magic != MAGIC:
        return f"{path} is not a GGUF file; convert it with llama.cpp's convert_hf_to_gguf.py"
    return None
