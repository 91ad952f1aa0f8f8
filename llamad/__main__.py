"""Owns the command line: flags in, exit status out. Both `python -m llamad` and `llamad` start here."""

from __future__ import annotations

import faulthandler
import logging
import os
import shutil
import sys
import traceback

from llamad import __version__, logs
from llamad.flags import Action, FlagError, Settings, help_text, parse
from llamad.http.binding import Bound, bind, refusal
from llamad.models.engine_process import EngineProcess


def main() -> int:
    """Exit status: 0 after a signal, 1 if it cannot start, 2 for wrong flags."""
    # After a crash in native code the log has the Python stacks of all threads.
    faulthandler.enable()
    try:
        parsed = parse(sys.argv[1:], os.environ)
    except FlagError as error:
        print(f"llamad: {error}", file=sys.stderr)
        return 2
    if parsed.action is not Action.RUN:
        try:
            print(_asked(parsed.action), end="", flush=True)
        except BrokenPipeError:  # `llamad --help | head`
            os._exit(0)
        return 0
    try:
        logs.setup(parsed.settings)
    except OSError as error:
        print(f"llamad: --log-file: {error.strerror}: {parsed.settings.log_file}", file=sys.stderr)
        return 1
    for warning in parsed.warnings:
        logging.getLogger("llamad").warning("%s", warning)
    if parsed.settings.log_test:
        logs.test()
        return 0
    settings = parsed.settings
    if "model" not in parsed.given and not os.path.exists(settings.model):
        print(
            "llamad: no model: give the path of a GGUF file with -m or --model, or in LLAMA_ARG_MODEL"
            f" (the default, {settings.model}, does not exist)",
            file=sys.stderr,
        )
        return 2
    try:
        bound = bind(settings.hosts, settings.port, settings.reuse_port)
    except OSError as error:
        print(f"llamad: {refusal(error)}", file=sys.stderr)
        return 1
    try:
        engine = EngineProcess(settings)
    except OSError as error:
        print(f"llamad: the engine process cannot be started: {error.strerror or error}", file=sys.stderr)
        return 1
    try:
        status = _serve(settings, engine, bound)
    except BaseException:  # a bug, or ^C before the event loop handles signals
        traceback.print_exc()
        status = 1
    bound.close()
    # The engine ends with this process; a worker that is still tokenizing must not delay the exit.
    logs.flush()
    os._exit(status)


def _asked(action: Action) -> str:
    """What the command line asks for instead of a server."""
    if action is Action.HELP:
        return help_text(shutil.get_terminal_size((100, 24)).columns)
    if action is Action.COMPLETION:
        from llamad.flags.completion import completion_script

        return completion_script()
    if action is Action.DEVICES:
        from llamad.engine.loading.devices import device_lines

        return "\n".join(device_lines()) + "\n"
    from llamad.daemon import build_info

    return f"llamad {__version__} (llama.cpp {build_info()})\n"


def _serve(settings: Settings, engine: EngineProcess, bound: Bound) -> int:
    """Imports the rest of the program while the engine opens the model."""
    import uvloop

    from llamad.daemon import Daemon, StartError

    async def run() -> int:
        return await Daemon(settings, engine=engine, bound=bound).run()

    try:
        return uvloop.run(run())
    except StartError as error:
        print(f"llamad: {error}", file=sys.stderr, flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
