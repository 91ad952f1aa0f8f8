"""Reads a command line, which asks for a text on the terminal, or for a server with settings and sockets."""

from __future__ import annotations

import logging
import os
import shutil
import sys

from llamad import __version__
from llamad.flags.help import help_text
from llamad.flags.parse import FlagError
from llamad.flags.settings import Settings
from llamad.flags.sources import Sources
from llamad.flags.types.flag import Action
from llamad.http.activation import Passed
from llamad.http.binding import Bound, bind, inherit, refusal
from llamad.logs import setup as logs
from llamad.models import local_files
from llamad.models.projector import ProjectorFileError, with_projector
from llamad.protocol.errors import LoadError
from llamad.systemd import exit_codes


def read(sources: Sources, passed: Passed) -> tuple[Settings, Bound] | int:
    """Set up the log and return the settings and the sockets to serve with. If there is nothing to serve, print why and
    return the exit status. `passed` are inherited sockets."""
    try:
        parsed = sources.read()
    except FlagError as error:
        return _refused(str(error), exit_codes.WRONG_FLAGS)
    if parsed.action is not Action.RUN:
        return answer(parsed.action, sources)
    daemon, model = parsed.settings.daemon, parsed.settings.model
    try:
        logs.setup(daemon)
    except OSError as error:
        return _refused(f"--log-file: {error.strerror}: {daemon.log_file}")
    for warning in parsed.warnings:
        logging.getLogger("llamad").warning("%s", warning)
    if daemon.log_test:
        logs.test()
        return 0
    # Very old command lines name no model, because there is one in the default place.
    sources.is_router = parsed.is_router and (parsed.lists_models or not os.path.exists(model.model))
    if not sources.is_router:
        reason = local_files.refusal(model)
        if reason is not None:
            return _refused(reason)
        try:
            model = with_projector(model) if not model.is_remote else model
        except ProjectorFileError as error:
            return _refused(str(error))
    try:
        if not passed:
            return Settings(daemon, model), bind(daemon.hosts, daemon.port, daemon.reuse_port)
        if parsed.given & {"hosts", "port", "reuse_port"}:
            logging.getLogger("llamad").warning(
                "the sockets are inherited: --host, --port and --reuse-port have no effect"
            )
        return Settings(daemon, model), inherit(passed)
    except OSError as error:
        return _refused(refusal(error), exit_codes.LISTEN_FAILED)


def answer(action: Action, sources: Sources) -> int:
    """Print what the command line asks for instead of a server, such as --help; return the exit status."""
    try:
        text = _devices(sources) if action is Action.DEVICES else _asked(action)
    except FlagError as error:
        return _refused(str(error), exit_codes.WRONG_FLAGS)
    except LoadError as error:
        return _refused(str(error))
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:  # `llamad --help | head`
        os._exit(0)
    return 0


def _refused(reason: str, status: int = exit_codes.FAILED) -> int:
    print(f"llamad: {reason}", file=sys.stderr)
    return status


def _devices(sources: Sources) -> str:
    """Return the list of devices. Raises FlagError, LoadError."""
    import asyncio

    from llamad.engine.loading.devices import device_lines
    from llamad.models.rpc_wait import reach_once

    workers = sources.without("--list-devices").read().settings.model.rpc
    asyncio.run(reach_once(workers))
    return "\n".join(device_lines(workers)) + "\n"


def _asked(action: Action) -> str:
    if action is Action.HELP:
        return help_text(shutil.get_terminal_size((100, 24)).columns)
    if action is Action.COMPLETION:
        from llamad.flags.completion import completion_script

        return completion_script()
    if action is Action.MODELS:
        from llamad.model_commands import listing

        return listing(os.environ)
    from llamad.daemon import build_info

    return f"llamad {__version__} (llama.cpp {build_info()})\n"
