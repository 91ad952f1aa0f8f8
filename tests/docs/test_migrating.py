"""docs/migrating.md: its table has every default that differs from that of llama-server, whose --help is read."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from support.peer import program

from llamad.flags.help import default_text
from llamad.flags.table import TABLE
from llamad.flags.types.flag import Ready

PAGE = Path(__file__).resolve().parents[2] / "docs" / "migrating.md"
# In both programs these defaults say the same: as the machine, the model or another flag has it.
SAME_IN_OTHER_WORDS = frozenset(
    {
        "-t",
        "-tb",
        "--rope-freq-base",
        "-ngl",
        "-kvu",
        "--kv-unified-per-slot",
        "--sampler-seq",
        "--spec-draft-threads",
        "--spec-draft-threads-batch",
        "--spec-draft-ngl",
    }
)
_WORDS = {"enabled": "on", "true": "on", "disabled": "off", "false": "off", "prefill enabled": "on"}
_ENTRY = re.compile(r"^(-\S.*(?:\n +.*)*)", re.MULTILINE)
_NAME = re.compile(r"(?<![\w<-])--?[a-zA-Z][\w-]*")
_DEFAULT = re.compile(r"\(\s*default:\s*([^()]*)|,\s*default:\s*([^()]*)")


def meaning(text: str) -> str:
    """A default in one spelling: 1.00 is 1, and enabled is on."""
    text = _WORDS.get(text, text)
    try:
        return f"{float(text):g}"
    except ValueError:
        return text


def theirs() -> dict[str, str]:
    """The defaults of llama-server by the names of its flags, as its --help has them."""
    shown = subprocess.run(
        [program(), "--help"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    defaults = {}
    for entry in _ENTRY.findall(shown):
        text = " ".join(entry.split())
        default = _DEFAULT.search(text)
        if default is not None:
            value = (default[1] or default[2] or "").strip().rstrip(",")
            if not value.startswith(("GET", "penalties")):
                value = re.split(r"[,;=]", value)[0]
            for name in _NAME.findall(entry.partition("\n")[0]):
                defaults.setdefault(name, value.strip().strip("'\""))
    return defaults


def differences() -> dict[str, tuple[str, str]]:
    """The defaults of both programs where they differ, by the first name of the flag."""
    known = theirs()
    differing = {}
    for flag in TABLE.flags:
        name = flag.names[0]
        if (
            not isinstance(flag.status, Ready)
            or name in SAME_IN_OTHER_WORDS
            or not (own := default_text(flag))
        ):
            continue
        value = next((known[one] for one in flag.names if one in known), None)
        if value is not None and meaning(value) != meaning(own):
            differing[name] = (meaning(value), own)
    return differing


def test_the_table_has_every_default_that_differs() -> None:
    rows = re.findall(
        r"^\| `(-[\w-]+)` \| `([^`]*)` \| `([^`]*)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert {name: (their, own) for name, their, own in rows} == differences()


def test_no_flag_is_taken_for_the_same_in_vain() -> None:
    """Each of them differs in its words; else it need not be listed."""
    known = theirs()
    for name in SAME_IN_OTHER_WORDS:
        flag, _ = TABLE.by_name[name]
        value = next(known[one] for one in flag.names if one in known)
        assert meaning(value) != meaning(default_text(flag)), name
