"""`llamad pull`, `llamad list` and `llamad rm`: manage the models in the cache. main() returns the exit status.

Runs on the main thread. Results go to standard output, everything else to standard error.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain

import msgspec

from llamad.flags.help import help_text
from llamad.flags.parse import FlagError
from llamad.flags.sources import Sources
from llamad.flags.types.flag import Action
from llamad.flags.types.model_files import HubName
from llamad.logs import setup as logs
from llamad.models.hub.cache import CachedModel, HubCache, UrlCache, hub_folder, url_folder
from llamad.models.hub.errors import HubError
from llamad.models.hub.names import split_name
from llamad.models.hub.progress import size_text
from llamad.models.model_download import with_files
from llamad.protocol.errors import LoadError

INTERRUPTED = 130  # the status with which shells report SIGINT

_USAGE = {
    "pull": "llamad pull USER/MODEL[:QUANT] ... [flags]",
    "list": "llamad list [--json]",
    "rm": "llamad rm USER/MODEL[:QUANT] ...",
}


def main(command: str, arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Return 0 if it is done, 1 if it is not possible, 2 for wrong arguments."""
    run: Callable[[Sequence[str], Mapping[str, str]], int] = {"pull": _pull, "list": _list, "rm": _remove}[
        command
    ]
    try:
        return run(arguments, environ)
    except FlagError as error:
        return _refused(f"{error}; usage: {_USAGE[command]}", 2)
    except (LoadError, HubError) as error:
        return _refused(str(error), 1)
    except OSError as error:
        return _refused(f"{error.filename}: {error.strerror}", 1)
    except KeyboardInterrupt:
        return _refused(
            "stopped; what has arrived is kept, and the next download continues from there", INTERRUPTED
        )


def _refused(reason: str, status: int) -> int:
    print(f"llamad: {reason}", file=sys.stderr)
    return status


def _names(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the arguments at the first flag."""
    n = next((i for i, text in enumerate(arguments) if text.startswith("-")), len(arguments))
    return list(arguments[:n]), list(arguments[n:])


def _pull(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Download models and print their paths. It takes the flags of a start."""
    names, flags = _names(arguments)
    lines = [["--hf-repo", name, *flags] for name in names] or [flags]
    every = [Sources(line, environ).read() for line in lines]
    if every[0].action is Action.HELP:
        print(help_text(shutil.get_terminal_size((100, 24)).columns), end="")
        return 0
    for parsed in every:
        if parsed.action is not Action.RUN or not parsed.settings.model.is_remote:
            raise FlagError("no model is named")
    for parsed in every:
        # People read this, so it has no prefix and no timestamps.
        logs.setup(
            msgspec.structs.replace(
                parsed.settings.daemon, log_format="text", log_prefix=False, log_timestamps="off"
            )
        )
        settings = with_files(parsed.settings.model, environ)
        for path in filter(None, (settings.model, settings.mmproj, settings.model_draft)):
            print(path, flush=True)
    return 0


def cached_models(environ: Mapping[str, str]) -> list[CachedModel]:
    caches = HubCache(hub_folder(environ)), UrlCache(url_folder(environ))
    return list(chain.from_iterable(cache.models() for cache in caches))


def listing(environ: Mapping[str, str]) -> str:
    """Return a table of the models in the cache, for people."""
    models = cached_models(environ)
    if not models:
        return f"no models in {hub_folder(environ)}\n"
    width = max(len("NAME"), *(len(one.name) for one in models))
    rows = [("NAME", "SIZE", "MODIFIED")]
    rows += [
        (one.name, size_text(one.size), time.strftime("%Y-%m-%d %H:%M", time.localtime(one.modified)))
        for one in models
    ]
    return "".join(f"{name:<{width}}  {size:>9}  {modified}\n" for name, size, modified in rows)


def _list(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    if list(arguments) == ["--json"]:
        print(msgspec.json.encode(cached_models(environ)).decode())
    elif arguments:
        raise FlagError(f"'{arguments[0]}' is not known")
    else:
        print(listing(environ), end="")
    return 0


def _remove(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    if not arguments:
        raise FlagError("no model is named")
    hub, urls = HubCache(hub_folder(environ)), UrlCache(url_folder(environ))
    for name in arguments:
        if "/" not in name and name.endswith(".gguf"):
            n_bytes = urls.remove(name)
        else:
            try:
                repo, quant = split_name(HubName().read(name))
            except ValueError as error:
                raise FlagError(str(error)) from None
            n_bytes = hub.remove(repo, quant)
        if not n_bytes:
            raise HubError(f"{name} is not in the cache; `llamad list` shows what is")
        print(f"removed {name} ({size_text(n_bytes)})")
    return 0
