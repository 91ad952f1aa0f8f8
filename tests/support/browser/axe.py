"""Owns the accessibility check of a page: axe-core, fetched once by npm into the cache folder, never committed."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from support.browser.webdriver import Browser

PACKAGE, VERSION = "axe-core", "4.14.0"
SHA256 = "20c09fe157a8a34a30e241aaa1fcdade657734f08ab379ecfbeb7d45cc46e878"
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


class Unavailable(Exception):
    """There is no axe here, and why."""


def _cache() -> Path:
    root = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "llamad"
    return Path(os.environ.get("LLAMAD_CACHE", root)) / "axe"


def source() -> str:
    """The text of axe.min.js. Raises Unavailable."""
    folder = _cache()
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / f"axe-{VERSION}.min.js"
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several workers
        if not kept.exists():
            part = kept.with_suffix(".part")
            part.write_bytes(_fetched())
            part.rename(kept)
    data = kept.read_bytes()
    if hashlib.sha256(data).hexdigest() != SHA256:
        kept.unlink()
        raise AssertionError(f"{PACKAGE} {VERSION} is not what it was: its SHA-256 differs")
    return data.decode()


def _fetched() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--silent", f"{PACKAGE}@{VERSION}"]
        try:
            subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=60)
            (packed,) = Path(folder).glob("*.tgz")
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            raise Unavailable(f"npm did not fetch {PACKAGE} {VERSION}: {error}") from None
        with tarfile.open(packed) as archive:
            member = archive.extractfile("package/axe.min.js")
            assert member is not None
            return member.read()


def problems(browser: Browser) -> list[str]:
    """What axe finds wrong with the page as it is shown: the rule, and the elements."""
    if not browser.run("return typeof axe !== 'undefined'"):
        browser.run(f"{source()}; window.axe = axe;")
    script = "return axe.run(document, {runOnly: arguments[0], resultTypes: ['violations']}).then((r) => r.violations)"
    violations: list[dict[str, Any]] = browser.run(script, TAGS)
    return [
        f"{rule['id']}: {rule['help']}: {node['html'][:200]} ({node.get('failureSummary', '')})"
        for rule in violations
        for node in rule["nodes"]
    ]
