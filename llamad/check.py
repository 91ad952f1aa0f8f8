"""`llamad check`: reports what a command line would serve and how much memory it would take, without serving. main()
returns the exit status.

Runs on the main thread. A child process surveys the model; the checks of the front are made by the same code as at a
start. It must not listen, and must not write a file.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import zip_longest

import msgspec

from llamad import command_line
from llamad.base import model_file
from llamad.daemon import Daemon, StartError
from llamad.engine.fit.measure import Device
from llamad.engine.fit.usage import KINDS, Use
from llamad.engine.survey import Alternative, Cache, Refusal, Survey
from llamad.flags import engine_settings
from llamad.flags.parse import FlagError, Parsed
from llamad.flags.settings import DaemonSettings, ModelSettings, Settings
from llamad.flags.sources import Sources
from llamad.flags.types.flag import Action
from llamad.http import unix_socket
from llamad.models.catalogue import catalogue, report
from llamad.models.catalogue.errors import CatalogueError
from llamad.models.engine_process import environment
from llamad.models.model_download import with_files
from llamad.models.projector import ProjectorFileError, with_projector
from llamad.models.rpc_wait import reach_once
from llamad.protocol.errors import LoadError
from llamad.protocol.model_info import VectorInfo
from llamad.tokenizer.vocab_file import VocabError, VocabFile

_MIB = 1 << 20
_LABEL_WIDTH = 10


class Memory(msgspec.Struct, frozen=True):
    """The memory that the model would take, in bytes."""

    devices: dict[str, Use]
    host: Use
    together: Use
    cache: Cache | None  # details of `together.cache`; None: the model does not generate
    prompt_cache_max: int  # the limit of --cache-ram; -1: no limit
    host_free: int


class Report(msgspec.Struct, frozen=True):
    """The report, as --json prints it."""

    model: str
    names: list[str]
    description: str
    n_params: int
    n_ctx_train: int
    generates: bool
    vectors: VectorInfo | None
    listens: list[str]
    n_slots: int
    n_ctx: int
    n_ctx_slot: int
    kv_unified: bool
    n_batch: int
    n_ubatch: int
    n_threads: int
    n_threads_batch: int
    devices: list[Device]
    n_layers: int  # including the output layer
    layers_offloaded: int
    memory: Memory
    fit: str  # what --fit chose, and why; empty: it chose nothing
    alternatives: list[Alternative]
    warnings: list[str]


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Return 0 if the command line would serve, and 1 if it would not, or not all models that it lists."""
    is_json = list(arguments[:1]) == ["--json"]
    arguments = arguments[1:] if is_json else arguments
    try:
        sources = Sources(arguments, environ)
        parsed = sources.read()
    except FlagError as error:
        return _refused(str(error))
    if parsed.action is not Action.RUN:
        return command_line.answer(parsed.action, sources)
    if parsed.is_router:
        return _check_catalogue(parsed, environ, is_json)
    daemon, model = parsed.settings.daemon, parsed.settings.model
    try:
        model = _with_files(model, environ)
        asyncio.run(reach_once(model.rpc))
        survey = _survey(model)
        doubts = asyncio.run(_check_front(Settings(daemon, model), survey))
    except (LoadError, StartError, ProjectorFileError) as error:
        return _refused(str(error))
    report = _report(Settings(daemon, model), survey, [*parsed.warnings, *doubts])
    print(msgspec.json.encode(report).decode() if is_json else _text(report))
    return 0


def _check_catalogue(parsed: Parsed, environ: Mapping[str, str], is_json: bool) -> int:
    """Print the models of a daemon that serves many. Return 1 if one of them is disabled."""
    try:
        result = report.report(catalogue.read(parsed, environ), parsed.warnings)
    except CatalogueError as error:
        return _refused(str(error))
    print(msgspec.json.encode(result).decode() if is_json else report.text(result))
    return int(any(one.reason for one in result.models))


def _refused(reason: str) -> int:
    print(f"llamad: {reason}", file=sys.stderr)
    return 1


def _with_files(settings: ModelSettings, environ: Mapping[str, str]) -> ModelSettings:
    """Return the settings with the model's files; a check downloads nothing. Raises LoadError, ProjectorFileError."""
    if settings.is_remote:
        return with_files(settings, environ, is_offline=True)
    reason = model_file.refusal(settings.model)
    if reason is not None:
        raise LoadError(reason)
    return with_projector(settings)


def _survey(settings: ModelSettings) -> Survey:
    """Survey the model in a child process. Raises LoadError."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "llamad.engine.survey"],
        input=engine_settings.pack(settings),
        capture_output=True,
        env=environment(),
    )
    last = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()][-1:]
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        raise LoadError(f"llama.cpp crashed ({name}) on {settings.model}: {' '.join(last)}")
    try:
        reply = msgspec.json.decode(done.stdout, type=Survey | Refusal)
    except msgspec.MsgspecError:
        raise LoadError(f"{settings.model} could not be surveyed: {' '.join(last)}") from None
    if isinstance(reply, Refusal):
        for line in reply.errors:
            print(f"llama.cpp: {line}", file=sys.stderr)
        would = "".join(f"; {one.flags} would fit" for one in reply.alternatives)
        raise LoadError(reply.reason + would)
    return reply


async def _check_front(settings: Settings, survey: Survey) -> list[str]:
    """Check everything but the model that a start reads: keys, certificates, templates, grammars. Return the warnings.
    Raises LoadError, StartError."""
    daemon = Daemon(settings.replaced({"step_trace": None, "log_prompts_dir": None}))  # these write files
    flags = settings.model
    try:
        vocab = VocabFile(flags.model, flags.override_kv, api_only=flags.llama_api_only)
    except VocabError as error:
        raise LoadError(str(error)) from None
    model = survey.loaded.model(vocab.vocab(special=flags.special))
    for one in daemon.models:
        one.prepare(model)
    daemon.models.close()
    complaint = daemon.reload.complaint()
    return [] if complaint is None else [f"TLS: {complaint[1]}"]


def _report(settings: Settings, survey: Survey, warnings: list[str]) -> Report:
    model, loaded, info = settings.model, survey.loaded, survey.loaded.info
    memory = Memory(
        devices=survey.usage.devices,
        host=survey.usage.host,
        together=survey.usage.total,
        cache=survey.cache,
        prompt_cache_max=survey.prompt_cache_bytes,
        host_free=survey.host_free_bytes,
    )
    return Report(
        model=model.model,
        names=list(model.aliases),
        description=info.description,
        n_params=info.n_params,
        n_ctx_train=info.n_ctx_train,
        generates=loaded.can_generate,
        vectors=loaded.vectors,
        listens=_addresses(settings.daemon),
        n_slots=model.n_parallel,
        n_ctx=loaded.n_ctx,
        n_ctx_slot=loaded.n_ctx_slot,
        kv_unified=model.kv_unified,
        n_batch=survey.n_batch,
        n_ubatch=survey.n_ubatch,
        n_threads=survey.n_threads,
        n_threads_batch=survey.n_threads_batch,
        devices=survey.devices,
        n_layers=survey.n_layers,
        layers_offloaded=survey.layers_offloaded,
        memory=memory,
        fit=survey.choice,
        alternatives=survey.alternatives,
        warnings=[*warnings, *survey.warnings, *_doubts(survey)],
    )


def _addresses(settings: DaemonSettings) -> list[str]:
    scheme = "https" if settings.ssl_cert_file else "http"
    return [
        f"unix:{host}"
        if unix_socket.is_path(host)
        else f"{scheme}://{f'[{host}]' if ':' in host else host}:{settings.port}"
        for host in settings.hosts
    ]


def _doubts(survey: Survey) -> list[str]:
    """Return warnings about settings that would start, but may not work well."""
    loaded = survey.loaded
    if not loaded.can_generate or loaded.n_ctx_slot <= loaded.info.n_ctx_train:
        return []
    return [
        f"a slot's context of {loaded.n_ctx_slot} tokens is more than the {loaded.info.n_ctx_train} that the"
        " model was trained for"
    ]


def _mib(n: int) -> str:
    return f"{n / _MIB:,.1f} MiB"


def _text(report: Report) -> str:
    rows = [
        ("model", f"{report.model}: {report.description}, {report.n_params / 1e6:,.1f} M parameters"),
        (
            "serves",
            ", ".join(_services(report)) + (f", as {', '.join(report.names)}" if report.names else ""),
        ),
        ("listens", ", ".join(report.listens)),
        *([("slots", _slots(report))] if report.generates else []),
        ("computes", ", ".join(_devices(report))),
        *zip_longest(["memory"], _memory(report), fillvalue=""),
        *([("fit", report.fit.removeprefix("fit: "))] if report.fit else []),
        *zip_longest(["instead"][: len(report.alternatives)], _alternatives(report), fillvalue=""),
        *(("warning", warning) for warning in report.warnings),
    ]
    return "\n".join(f"{label:<{_LABEL_WIDTH}}{text}" for label, text in rows)


def _services(report: Report) -> list[str]:
    services = ["completions and chats"] if report.generates else []
    if report.vectors is not None:
        what = "scores" if report.vectors.pooling == "rank" else "embeddings"
        services.append(f"{what} of {report.vectors.n_out} numbers (pooling {report.vectors.pooling})")
    return services


def _slots(report: Report) -> str:
    shared = f", in one cache of {report.n_ctx}" if report.kv_unified else ""
    each = " each" if report.n_slots > 1 else ""
    return (
        f"{report.n_slots} of {report.n_ctx_slot} tokens{each}{shared};"
        f" the model was trained for {report.n_ctx_train}"
    )


def _devices(report: Report) -> list[str]:
    used = [
        f"{device.name} ({device.description}, {_mib(device.free)} of {_mib(device.total)} free)"
        for device in report.devices
    ]
    if used:
        used[-1] += f" with {report.layers_offloaded} of {report.n_layers} layers"
    n, n_batch = report.n_threads, report.n_threads_batch
    threads = f"CPU with {n} thread{'s' if n > 1 else ''}"
    return [*used, threads + (f", {n_batch} for prompts" if n_batch != n else "")]


def _memory(report: Report) -> list[str]:
    """Return the table of memory: a row for each kind, a column for each device and the host."""
    memory = report.memory
    columns = {**memory.devices, "RAM": memory.host}
    if memory.devices:
        columns["together"] = memory.together
    rows = [["", *columns]]
    for kind in KINDS:
        if getattr(memory.together, kind):
            rows.append([kind, *(_mib(getattr(use, kind)) for use in columns.values())])
    rows.append(["total", *(_mib(use.total) for use in columns.values())])
    free = {device.name: device.free for device in report.devices} | {"RAM": memory.host_free}
    # A device that only the draft model uses is not among those of the report.
    rows.append(["free", *(_mib(free[name]) if name in free else "" for name in columns)])
    widths = [max(len(row[i]) for row in rows if i < len(row)) for i in range(len(rows[0]))]
    lines = [
        "  ".join(
            text.ljust(width) if i == 0 else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=False))
        ).rstrip()
        for row in rows
    ]
    limit = {-1: "no limit", 0: "off"}.get(memory.prompt_cache_max, f"up to {_mib(memory.prompt_cache_max)}")
    if memory.cache is not None:
        fixed = f", and {_mib(memory.cache.fixed)} that do not grow" if memory.cache.fixed else ""
        lines.append(f"cache: {memory.cache.token:,} bytes for each token of the context{fixed}")
    return [*lines, f"prompt cache in RAM: {limit} (--cache-ram)"]


def _alternatives(report: Report) -> list[str]:
    return [f"{one.flags} takes {_mib(one.usage.total.total)} together" for one in report.alternatives]
