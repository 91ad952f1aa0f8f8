"""Runs examples of the documentation in a shell. Where curl or jq is missing, this file itself stands in for it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

SECONDS = 120


def run(script: str, folder: Path, url: str = "") -> str:
    """What the script prints. Every command in it must succeed; http://localhost:8080 becomes `url`."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    for name in ("curl", "jq"):
        stand_in = tools / name
        if shutil.which(name) is None and not stand_in.exists():
            stand_in.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" {name} "$@"\n')
            stand_in.chmod(0o755)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script.replace("http://localhost:8080", url)],
        cwd=folder,
        env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"},
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stderr, done.stdout[:2000])
    return done.stdout.decode()


def values(text: str) -> list[Any]:
    """The JSON values that a script printed, one behind the other."""
    decoder, found, pos = json.JSONDecoder(), [], 0
    while pos < len(text.rstrip()):
        pos += len(text[pos:]) - len(text[pos:].lstrip())
        value, pos = decoder.raw_decode(text, pos)
        found.append(value)
    return found


def _curl(arguments: list[str]) -> None:
    method, url, data, output = "", "", None, None
    headers = {}
    rest = iter(arguments)
    for word in rest:
        if word == "-X":
            method = next(rest)
        elif word == "-H":
            name, _, value = next(rest).partition(":")
            headers[name] = value.strip()
        elif word in ("-d", "--data-binary"):
            text = next(rest)
            data = Path(text[1:]).read_bytes() if text.startswith("@") else text.encode()
        elif word == "-o":
            output = next(rest)
        elif word != "-s":
            url = word
    method = method or ("POST" if data is not None else "GET")
    answer = urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method)).read()
    if output is None:
        sys.stdout.buffer.write(answer)
    else:
        Path(output).write_bytes(answer)


def _jq(arguments: list[str]) -> None:
    """The few filters that the examples have: `.`, a path, and an object of some fields."""
    raw = "-r" in arguments
    (text,) = [word for word in arguments if word != "-r"]
    value = json.load(sys.stdin)
    if text.startswith("{"):
        value = {name: value[name] for name in re.findall(r"\w+", text)}
    else:
        for name, index in re.findall(r"\.(\w+)|\[(\d+)\]", text):
            value = value[name] if name else value[int(index)]
    print(value if raw and isinstance(value, str) else json.dumps(value, indent=2))


if __name__ == "__main__":
    {"curl": _curl, "jq": _jq}[sys.argv[1]](sys.argv[2:])
