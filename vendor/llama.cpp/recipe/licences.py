"""Collects the licences of the code in llama.cpp's libraries and programs, from the sources at build time. `LINKED` is
maintained by hand: it lists everything whose code is in a file of the wheel.
"""

from dataclasses import dataclass
from pathlib import Path

from .report import SetupError


@dataclass(frozen=True)
class Part:
    """A licence, and where its text is in the sources: from the line `begin` to `end`, or without these the whole
    file."""

    name: str
    linked_into: str
    path: str
    begin: str = ""
    end: str = ""


LINKED = (
    Part("llama.cpp and ggml", "all libraries and programs", "LICENSE"),
    Part(
        "llamafile sgemm",
        "libggml-cpu",
        "ggml/src/ggml-cpu/llamafile/sgemm.cpp",
        begin="// Copyright 2024 Mozilla Foundation",
        end="// SOFTWARE.",
    ),
    Part(
        "YaRN",
        "libggml-cpu",
        "ggml/src/ggml-cpu/ops.cpp",
        begin="// YaRN algorithm based on",
        end="// MIT licensed.",
    ),
    Part(
        "stb_image",
        "libmtmd",
        "vendor/stb/stb_image.h",
        begin="This software is available under 2 licenses",
        end="*/",
    ),
    Part(
        "miniaudio",
        "libmtmd",
        "vendor/miniaudio/miniaudio.h",
        begin="This software is available as a choice",
        end="*/",
    ),
    Part("sha256", "libmtmd", "vendor/hash/sha256/LICENSE"),
    Part("rotate-bits", "libmtmd", "vendor/hash/rotate-bits/LICENSE.md"),
)


def file_name(part: Part) -> str:
    return part.name.replace(" ", "-") + ".txt"


def collect(tree: Path, folder: Path, *, strict: bool) -> None:
    """Write a file for each part. In sources other than the pinned ones a part may be missing or elsewhere."""
    folder.mkdir(parents=True)
    for part in LINKED:
        text = _text(tree, part)
        if text:
            head = f"{part.name} (in {part.linked_into}), from llama.cpp's {part.path}:\n\n"
            (folder / file_name(part)).write_text(head + text + "\n", encoding="utf-8")
        elif strict or part.path == "LICENSE":
            raise SetupError(
                f"the licence of {part.name} is not in llama.cpp's {part.path} any more: correct recipe/licences.py"
            )


def _text(tree: Path, part: Part) -> str:
    path = tree / part.path
    if not path.is_file():
        return ""
    text = path.read_text(encoding="utf-8", errors="replace")
    if not part.begin:
        return text.strip()
    lines = text.splitlines()
    begin = next((n for n, line in enumerate(lines) if line.startswith(part.begin)), None)
    if begin is None:
        return ""
    end = next((n for n, line in enumerate(lines[begin:], begin) if line.startswith(part.end)), None)
    if end is None:
        return ""
    stop = end + (part.end != "*/")  # the end of a comment does not belong to the text
    return "\n".join(line.removeprefix("//").removeprefix(" ") for line in lines[begin:stop]).strip()
