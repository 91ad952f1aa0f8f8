"""Starts the program: both `python -m llamad` and `llamad` begin here. main() returns the exit status.

The engine process is started first, so that it imports its modules while this one imports its own and reads the command
line.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import sys
from typing import TYPE_CHECKING

from llamad.http import activation
from llamad.models.engine_process import EngineProcess
from llamad.systemd import exit_codes, notify

if TYPE_CHECKING:
    from llamad.flags.settings import Settings
    from llamad.flags.sources import Sources
    from llamad.http.binding import Bound


def main() -> int:
    """Run the command line; return one of the statuses in exit_codes.py."""
    # After a crash in native code, this prints the Python stacks of all threads.
    faulthandler.enable()
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    if command == "check":
        from llamad import check

        return check.main(sys.argv[2:], os.environ)
    if command in ("pull", "list", "rm"):
        from llamad import model_commands

        return model_commands.main(command, sys.argv[2:], os.environ)
    if command == "cache":
        from llamad import cache_commands

        return cache_commands.main(sys.argv[2:], os.environ)
    if command == "launch":
        from llamad.launch import command as launch

        return launch.main(sys.argv[2:], os.environ)
    if command == "rpc-server":
        from llamad.rpc import server as rpc_server

        return rpc_server.main(sys.argv[2:])
    gc.disable()  # imports make no garbage: the collector would only look through the modules, several times
    # Ignored until the event loop handles it, because a rotation of logs must not kill a daemon that is starting.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    notify.take(os.environ)
    try:
        passed = activation.take(os.environ)
    except OSError as error:
        print(f"llamad: {error.strerror}", file=sys.stderr)
        return exit_codes.LISTEN_FAILED
    engine = _engine()

    from llamad import command_line
    from llamad.flags.sources import Sources

    sources = Sources(sys.argv[1:], os.environ)
    result = command_line.read(sources, passed)
    if not isinstance(result, int):
        return _serve(*result, engine, sources)
    if engine is not None:
        engine.abandon()
    return result


def _engine() -> EngineProcess | None:
    """Start an engine process; return None if that fails, which matters only to a command line that serves."""
    try:
        return EngineProcess()
    except OSError:
        return None


def _serve(settings: Settings, bound: Bound, engine: EngineProcess | None, sources: Sources) -> int:
    try:
        engine = engine or EngineProcess()
        # Otherwise files or workers must be there first, or nobody has asked for a model.
        if not settings.model.is_remote and not settings.model.rpc and not sources.is_router:
            engine.begin(settings.model)
    except OSError as error:
        print(f"llamad: the engine process cannot be started: {error.strerror or error}", file=sys.stderr)
        return exit_codes.FAILED

    from llamad.logs import setup as logs

    try:
        status = _run(settings, bound, engine, sources)
    except BaseException:  # a bug, or ^C before the event loop handles signals
        import traceback

        traceback.print_exc()
        status = exit_codes.FAILED
    bound.close()
    # The engine ends with this process. A worker thread that is still tokenizing must not delay the exit.
    logs.flush()
    os._exit(status)


def _run(settings: Settings, bound: Bound, engine: EngineProcess, sources: Sources) -> int:
    import uvloop

    from llamad.daemon import Daemon, StartError

    gc.freeze()  # what was imported stays: the first collection need not look through it
    gc.enable()

    async def run() -> int:
        return await Daemon(settings, engine=engine, bound=bound, sources=sources).run()

    try:
        return uvloop.run(run())
    except StartError as error:
        print(f"llamad: {error}", file=sys.stderr, flush=True)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
