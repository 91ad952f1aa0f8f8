"""`llamad cache list`, `rm` and `verify`: look after the prompt cache on disk. main() returns the exit status.

Runs on the main thread, with or without a daemon that uses the folder. Results go to standard output, everything else
to standard error. Shows no prompt and no key.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping, Sequence

import msgspec

from llamad.models.cache_disk import turn_files
from llamad.models.cache_disk.faults import reason_of
from llamad.models.cache_disk.folder import Folder, entry_names
from llamad.models.cache_disk.index import Index, Stored, stored
from llamad.models.cache_disk.row_file import EntryBroken, RowFile
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
    """A prompt, or a broken file, as `llamad cache list --json` shows it. What several prompts share counts in the size
    of the one that was used last."""

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
        where = f"{error.filename}: " if error.filename is not None else ""
        return _refused(f"{where}{reason_of(error)}", 1)


def _refused(reason: str, status: int) -> int:
    print(f"llamad: {reason}", file=sys.stderr)
    return status


def _folder(words: list[str], environ: Mapping[str, str]) -> tuple[Folder, list[str]]:
    """Return the folder and the names of entries. A first word that cannot be a name is the folder."""
    path = environ.get(VARIABLE, "")
    if words and not _NAME(_stem(words[0])):
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


def _stem(name: str) -> str:
    """Return the name of a prompt or file without the ending."""
    return name.partition(".")[0]


def _read(folder: Folder) -> tuple[Index, dict[str, str]]:
    """Return an index of the files, and what is wrong with those that are broken or cannot be read. Files that are
    removed meanwhile are left out."""
    index, broken = Index(), {}
    with folder.opened() as fd:
        for name in sorted(entry_names(fd)):
            try:
                with RowFile(fd, name) as file:
                    index.add(stored(file.description, file.size, file.used))
            except FileNotFoundError:
                continue
            except (EntryBroken, OSError) as error:
                broken[name] = reason_of(error)
    return index, broken


def _entries(folder: Folder) -> list[Listed]:
    """Return all prompts and broken files, the last used first."""
    index, broken = _read(folder)
    entries = [Listed(_stem(name), "", 0, 0, 0.0, 0.0, "", 0, why) for name, why in broken.items()]
    for last in sorted(index.lasts(), key=lambda one: -one.used):
        n_bytes, about = 0, last.about
        block: Stored | None = last
        while block is not None and block.name in index:
            before = index.before(block)
            for one in (*index.ends_in(block), block):
                n_bytes += one.n_bytes
                index.remove(one.name)
            block = before
        group = about.group
        entries.append(
            Listed(
                _stem(last.name),
                about.model,
                about.n_tokens,
                n_bytes,
                last.used,
                about.created,
                group.owner,
                group.adapters,
            )
        )
    return sorted(entries, key=lambda one: -one.used)


def _list(folder: Folder, names: list[str], flags: list[str]) -> int:
    _none(names, flags, ("--json",))
    entries = _entries(folder)
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
    if "--all" in flags:
        if names:
            raise Refused(f"name entries or --all, not both\n{USAGE}", 2)
        prompts = [one.name for one in _entries(folder)]
        chosen = [*folder.names(), *turn_files.names(folder)]
        folder.sweep()
    else:
        if not names:
            raise Refused(
                f"no entry is named; `llamad cache list` shows them, --all removes them\n{USAGE}", 2
            )
        prompts = [_stem(name) for name in names]
        chosen, tokens = _chosen(folder, prompts)
        chosen += _answers_in(folder, tokens)
    left = _remove_files(folder, chosen)
    n_removed = sum(not any(name.startswith(prompt) for name in left) for prompt in prompts)
    print(f"removed {n_removed} prompts")
    return 1 if left else 0


def _remove_files(folder: Folder, names: list[str]) -> list[str]:
    """Remove these files. Return the names of those that cannot be removed, which are printed with the reason."""
    left = []
    for name in names:
        try:
            folder.remove(name)
        except OSError as error:
            left.append(name)
            print(f"llamad: {name} cannot be removed: {reason_of(error)}", file=sys.stderr)
    return left


def _chosen(folder: Folder, names: list[str]) -> tuple[list[str], list[bytes]]:
    """Return the files of these prompts, the last ones first, so that none is left without those that it needs, and
    their tokens."""
    index, broken = _read(folder)
    lasts = {_stem(one.name): one for one in index.lasts()}
    files = {_stem(name): name for name in broken}
    chosen: list[str] = []
    prompts: list[bytes] = []
    for name in names:
        stem = _one([*lasts, *files], name)
        if stem in files:
            chosen.append(files[stem])
        else:
            prompts.append(_tokens(index, lasts[stem]))
            chosen += [one.name for one in _own_files(index, lasts[stem])]
    return chosen, prompts


def _tokens(index: Index, last: Stored) -> bytes:
    """Return the tokens of a prompt, as far as its blocks are there."""
    blocks: list[bytes] = []
    block: Stored | None = last
    while block is not None:
        blocks.append(block.about.tokens)
        block = index.before(block)
    return b"".join(reversed(blocks))


def _answers_in(folder: Folder, prompts: list[bytes]) -> list[str]:
    """Return the files of the answers that these prompts contain. One that cannot be read may be among them, so it is
    named."""
    names = []
    for name in turn_files.names(folder) if prompts else ():
        try:
            with folder.opened() as fd:
                tokens = turn_files.read(fd, name)[0].tokens
        except (FileNotFoundError, EntryBroken):
            continue
        except OSError as error:
            print(
                f"llamad: the answer {name} stays, because it cannot be read: {reason_of(error)}",
                file=sys.stderr,
            )
            continue
        if any(tokens in prompt for prompt in prompts):
            names.append(name)
    return names


def _own_files(index: Index, last: Stored) -> list[Stored]:
    """Return the files that only this prompt needs, and take them from the index."""
    files: list[Stored] = []
    block: Stored | None = last
    while block is not None and index.is_last(block):
        own = [*index.ends_in(block), block]
        before = index.before(block)
        for one in own:
            index.remove(one.name)
        files += own
        block = before
    return files


def _one(stored: list[str], name: str) -> str:
    matches = [one for one in stored if one.startswith(name)]
    if len(matches) != 1:
        problem = "is not in the cache" if not matches else "is the beginning of several names"
        raise Refused(f"{name} {problem}; `llamad cache list` shows what is there")
    return matches[0]


def _read_all(folder: int, name: str) -> None:
    """Read a file and compare its checksums. Raises OSError, EntryBroken."""
    if name.endswith(turn_files.ENDING):
        turn_files.read(folder, name)
        return
    with RowFile(folder, name) as file:
        file.verify()


def _verify(folder: Folder, names: list[str], flags: list[str]) -> int:
    _none(names, flags)
    n_good = n_broken = 0
    for name in [*sorted(folder.names()), *sorted(turn_files.names(folder))]:
        try:
            with folder.opened() as fd:
                _read_all(fd, name)
            n_good += 1
        except FileNotFoundError:
            continue
        except (EntryBroken, OSError) as error:
            n_broken += 1
            print(f"{name}: {reason_of(error)}")
    print(f"{n_good} files are good, {n_broken} are broken")
    if n_broken:
        print(
            "llamad: a daemon removes broken ones when it finds them; `llamad cache rm` does", file=sys.stderr
        )
    return 1 if n_broken else 0
