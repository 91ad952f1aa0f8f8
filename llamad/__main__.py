"""Owns the command line: flags in, exit status out. `python -m llamad` and the `llamad` program both come here."""

from __future__ import annotations

import faulthandler
import logging
import os
import shutil
import sys

import uvloop

from llamad import __version__, logs
from llamad.daemon import Daemon, StartError, build_info
from llamad.flags import Action, FlagError, Settings, help_text, parse


def main() -> int:
    """Exit status: 0 stopped as asked, 1 cannot start, 2 wrong flags."""
    # A crash in native code leaves the Python stacks of all threads in the log.
    faulthandler.enable()
    try:
        parsed = parse(sys.argv[1:], os.environ)
    except FlagError as error:
        print(f"llamad: {error}", file=sys.stderr)
        return 2
    if parsed.action is Action.HELP:
        try:
            print(help_text(shutil.get_terminal_size((100, 24)).columns), flush=True)
        except BrokenPipeError:  # `llamad --help | head`
            os._exit(0)
        return 0
    if parsed.action is Action.VERSION:
        print(f"llamad {__version__} (llama.cpp {build_info()})")
        return 0
    try:
        logs.setup(parsed.settings)
    except OSError as error:
        print(f"llamad: --log-file: {error.strerror}: {parsed.settings.log_file}", file=sys.stderr)
        return 1
    for warning in parsed.warnings:
        logging.getLogger("llamad").warning("%s", warning)
    # llama.cpp's own way of dying forks a debugger for a backtrace; a service has better things to do.
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    try:
        status = uvloop.run(_serve(parsed.settings))
    except StartError as error:
        print(f"llamad: {error}", file=sys.stderr)
        return 1
    # A thread that is still inside llama.cpp must neither hold the exit up nor see its model freed.
    logs.flush()
    os._exit(status)


async def _serve(settings: Settings) -> int:
    return await Daemon(settings).run()


if __name__ == "__main__":
    sys.exit(main())
