"""Owns the command line: flags in, exit status out. Both `python -m llamad` and `llamad` start here."""

from __future__ import annotations

import faulthandler
import logging
import os
import shutil
import sys
import traceback

from llamad import __version__, logs
from llamad.engine.loading.opening import Opening
from llamad.engine.loading.threads import compute_threads
from llamad.flags import Action, FlagError, Settings, help_text, parse
from llamad.http.binding import Bound, bind, refusal


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
        from llamad.daemon import build_info

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
    settings = parsed.settings
    try:
        bound = bind(settings.host, settings.port)
    except OSError as error:
        print(f"llamad: {refusal(error)}", file=sys.stderr)
        return 1
    opening = Opening(settings, compute_threads(settings.n_threads))
    opening.start()
    try:
        status = _serve(settings, opening, bound)
    except BaseException:  # a fault of ours, or ^C before the loop takes signals
        traceback.print_exc()
        status = 1
    bound.close()
    # A thread that is still inside llama.cpp must neither hold the exit up nor see its model freed.
    logs.flush()
    os._exit(status)


def _serve(settings: Settings, opening: Opening, bound: Bound) -> int:
    """Imports all the rest, while the model is being opened."""
    import uvloop

    from llamad.daemon import Daemon, StartError

    async def run() -> int:
        return await Daemon(settings, opening=opening, bound=bound).run()

    try:
        return uvloop.run(run())
    except StartError as error:
        print(f"llamad: {error}", file=sys.stderr, flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
