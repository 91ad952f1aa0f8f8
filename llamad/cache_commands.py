"""`llamad cache list`, `rm` and `verify`: look after the prompt cache on disk. main() returns the exit status.

Runs on the main thread, with or without a daemon that uses the folder. Results go to standard output, everything else
to standard error. Shows no prompt and no key.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from llamad.models.cache_disk.entry_file import Description, EntryBroken, EntryFile
from llamad.models.cache_disk.folder import ENDING, Folder
from llamad.models.hub.progress import size_text

VARIABLE = "LLAMA_ARG_CACHE_DISK"
NAME_SHOWN = 12  # characters of a name in the list
_NAME = re.compile(r"[0-9a-f]{4,32}").fullmatch
USAGE = f"""usage: llamad cache list [PATH] [--json]
       llamad cache rm [PATH] NAME ... | --all
       llamad cache verify [PATH]
PATH is the folder of --cache-disk; if it is left out, {VARIABLE} names it."""


class Refused(Exception):
    """The command cannot be run. str() says why, `status` is the exit status."""

    def __init__(self, reason: str, status: int = 1) -> None:
        super().__init__(reason)
        self.status = status


class Listed(msgspec.Struct, frozen=True):
    """An entry as `llamad cache list --json` shows it."""

    name: str
    model: str
    n_tokens: int
    n_bytes: int
    used: float  # seconds since the epoch
    created: float
    owner: str  # the salted hash of the API key; "" without one
    adapters: int
    broken: str = ""  # what is wrong with the file


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Return 0 if it is done, 1 if it is not possible or a file is broken, 2 for wrong arguments."""
    try:
        if not arguments or arguments[0] not in ("list", "rm", "verify"):
            if arguments and arguments[0] in ("-h", "--help"):
                print(USAGE)
                return 0
            raise Refused(f"name list, rm or verify\n{USAGE}", 2)
        flags = [text for text in arguments[1:] if text.startswith("-")]
        folder, names = _folder([text for text in arguments[1:] if not text.startswith("-")], environ)
        command = {"list": _list, "rm": _remove, "verify": _verify}[arguments[0]]
        return command(folder, names, flags)
    except Refused as error:
        return _refused(str(error), error.status)
    except BrokenPipeError:  # `llamad cache list | head`
        return 0
    except OSError as error:
        return _refused(f"{error.filename}: {error.strerror}", 1)


def _refused(reason: str, status: int) -> int:
    print(f"llamad: {reason}", file=sys.stderr)
    return status


def _folder(words: list[str], environ: Mapping[str, str]) -> tuple[Folder, list[str]]:
    """Return the folder and the names of entries. A first word that cannot be a name is the folder."""
    path = environ.get(VARIABLE, "")
    if words and not _NAME(words[0].removesuffix(ENDING)):
        path, words = words[0], words[1:]
    if not path:
        raise Refused(f"no folder is named\n{USAGE}", 2)
    folder = Folder(path)
    if not folder.is_used:
        raise Refused(f"{path} has no prompt cache; name the folder that --cache-disk names")
    return folder, words


def _none(names: list[str], flags: list[str], known: tuple[str, ...] = ()) -> None:
    """Refuse arguments that a command does not know."""
    for text in (*names, *(flag for flag in flags if flag not in known)):
        raise Refused(f"'{text}' is not known\n{USAGE}", 2)


def _entries(folder: Folder) -> Iterator[Listed]:
    """Yield all entries; files that are removed meanwhile are left out."""
    for name in sorted(folder.names()):
        try:
            with folder.opened() as fd, EntryFile(fd, name) as file:
                yield _listed(name, file.description, file.size, file.used)
        except FileNotFoundError:
            continue
        except EntryBroken as error:
            yield Listed(name.removesuffix(ENDING), "", 0, 0, 0.0, 0.0, "", 0, str(error))


def _listed(name: str, about: Description, n_bytes: int, used: float) -> Listed:
    group = about.group
    return Listed(
        name.removesuffix(ENDING),
        about.model,
        about.n_tokens,
        n_bytes,
        used,
        about.created,
        group.owner,
        group.adapters,
    )


def _list(folder: Folder, names: list[str], flags: list[str]) -> int:
    _none(names, flags, ("--json",))
    entries = sorted(_entries(folder), key=lambda one: -one.used)
    if "--json" in flags:
        print(msgspec.json.encode(entries).decode())
        return 0
    if not entries:
        print(f"no prompts in {folder.path}")
        return 0
    width = max(len("MODEL"), *(len(one.model or "?") for one in entries))
    print(f"{'NAME':<{NAME_SHOWN}}  {'MODEL':<{width}}  {'TOKENS':>8}  {'SIZE':>9}  {'USED':<16}  KEY")
    for one in entries:
        name, model = one.name[:NAME_SHOWN], one.model or "?"
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.used))
        end = f"broken: {one.broken}" if one.broken else one.owner[:8] or "-"
        size = size_text(one.n_bytes)
        print(f"{name:<{NAME_SHOWN}}  {model:<{width}}  {one.n_tokens:>8}  {size:>9}  {used:<16}  {end}")
    print(f"{len(entries)} prompts, {size_text(sum(one.n_bytes for one in entries))}")
    return 0


def _remove(folder: Folder, names: list[str], flags: list[str]) -> int:
    _none([], flags, ("--all",))
    stored = folder.names()
    if "--all" in flags:
        if names:
            raise Refused(f"name entries or --all, not both\n{USAGE}", 2)
        chosen = stored
        folder.sweep()
    else:
        if not names:
            raise Refused(
                f"no entry is named; `llamad cache list` shows them, --all removes them\n{USAGE}", 2
            )
        chosen = [_one(stored, name.removesuffix(ENDING)) for name in names]
    for name in chosen:
        folder.remove(name)
    print(f"removed {len(chosen)} prompts")
    return 0


def _one(stored: list[str], name: str) -> str:
    found = [one for one in stored if one.startswith(name)]
    if len(found) != 1:
        problem = "is not in the cache" if not found else "is the beginning of several names"
        raise Refused(f"{name} {problem}; `llamad cache list` shows what is there")
    return found[0]


def _verify(folder: Folder, names: list[str], flags: list[str]) -> int:
    _none(names, flags)
    n_good = n_broken = 0
    for name in sorted(folder.names()):
        try:
            with folder.opened() as fd, EntryFile(fd, name) as file:
                file.verify()
            n_good += 1
        except FileNotFoundError:
            continue
        except EntryBroken as error:
            n_broken += 1
            print(f"{name.removesuffix(ENDING)}: {error}")
    print(f"{n_good} prompts are good, {n_broken} are broken")
    if n_broken:
        print(
            "llamad: a daemon removes broken ones when it finds them; `llamad cache rm` does", file=sys.stderr
        )
    return 1 if n_broken else 0
