"""Parses the command line, the environment and the lines of --env-file into Settings.

Runs on the main thread at start-up, and on another at a reload. Must not read files, print or exit; it only returns or
raises FlagError.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from llamad.base.printable import printable
from llamad.flags.env_file import Line
from llamad.flags.groups.draft_model import NAMED_BY, TUNED_BY
from llamad.flags.groups.many_models import ManyModels
from llamad.flags.groups.speculative import OF_ALL_TYPES
from llamad.flags.settings import DaemonSettings, ModelSettings, Settings, divided
from llamad.flags.table import TABLE, Table
from llamad.flags.types.flag import ENV_PREFIX, Action, Flag, Later, Preset, Ready, Request
from llamad.flags.types.kinds import I32_MAX, Pair, Switch
from llamad.flags.types.speculation import MODEL_TYPE, NGRAM_CACHE
from llamad.options.sampler_names import BREAKER_BYTES_MAX, BREAKERS_MAX
from llamad.options.table import FIELDS, WITH_FLAG, Options

_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|([nrt'\"\\]))")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "'": "'", '"': '"', "\\": "\\"}
# The number of slots without -np.
SLOTS_AUTO = 4
_FLOAT_CACHES = ("f32", "f16", "bf16")
# The settings that name a model, and those that list many.
MODEL_SOURCES = ("model", "hf_repo", "model_url")
_LISTS = ("models_dir", "models_preset")
# Settings that belong to a single model, so they cannot be given for all of them.
OF_ONE_MODEL = ("aliases", "mmproj", "mmproj_url")


class FlagError(ValueError):
    """An invalid command line; the message is one line and says what to do."""

    def __init__(self, message: str) -> None:
        # Messages quote the user's text, which may contain newlines and control characters.
        super().__init__(printable(message))


class Setting(msgspec.Struct, frozen=True):
    """One flag or variable that was set. `source` is its name as the user wrote it, `texts` are the texts of its value
    (none for a switch without one)."""

    flag: Flag
    source: str
    value: Any
    texts: tuple[str, ...] = ()


class Parsed(msgspec.Struct, frozen=True):
    """A parsed command line. With an action other than RUN, the settings are the defaults."""

    settings: Settings
    warnings: list[str]
    given: frozenset[str]  # the dests that a flag or a variable set
    action: Action
    # The settings by source: --env-file, the environment, the command line. A later source has more weight.
    layers: tuple[tuple[Setting, ...], ...] = ()

    @property
    def is_router(self) -> bool:
        """Whether the daemon serves many models: no source names one."""
        return self.action is Action.RUN and self.given.isdisjoint(MODEL_SOURCES)

    @property
    def lists_models(self) -> bool:
        """Whether a flag says where many models are."""
        return not self.given.isdisjoint(_LISTS)


def parse(argv: Sequence[str], environ: Mapping[str, str], lines: Mapping[str, Line] | None = None) -> Parsed:
    """Return the settings. Each comes from the arguments (without the program's name), else from the environment, else
    from the lines of --env-file, else it has its default. Raises FlagError."""
    warnings: list[str] = []
    from_argv = scan(argv, TABLE)
    if isinstance(from_argv, Action):
        return Parsed(_settings(_defaults(TABLE), frozenset()), warnings, frozenset(), from_argv)
    winners = {one.flag.dest: f"{one.source} on the command line" for one in from_argv}
    variables = {name: Line(name, text) for name, text in environ.items()}
    from_environ = _from_variables(variables, winners, TABLE, warnings)
    _warn_unknown(sorted(environ), TABLE, warnings)
    winners |= {one.flag.dest: f"{one.source} in the environment" for one in from_environ}
    from_file = _from_file(lines or {}, winners, TABLE, warnings)
    layers = (from_file, from_environ, from_argv)
    parsed = settle(layers, warnings)
    _one_or_many(parsed, {one.flag.dest: one for layer in layers for one in layer}, warnings)
    return msgspec.structs.replace(parsed, layers=tuple(map(tuple, layers)))


def settle(layers: Sequence[Sequence[Setting]], warnings: list[str]) -> Parsed:
    """Return the settings of several sources, of which a later one has more weight, without their layers. Only lists in
    the same source should set the same dest, because they are concatenated. Adds to the warnings. Raises FlagError."""
    settings = _one_model(layers, warnings)
    values = merge(settings, TABLE, warnings)
    _choose_drafts(values, settings, warnings)
    given = frozenset(one.flag.dest for one in settings)
    _unescape(values, given)
    _imply(values, given)
    result = _settings(values, given)
    _check_together(result)
    return Parsed(result, warnings, given & frozenset(values), Action.RUN)


def _one_or_many(parsed: Parsed, given: Mapping[str, Setting], warnings: list[str]) -> None:
    """Check that the sources either name one model or list many. Warn about flags that are for the other case. Raises
    FlagError."""
    if parsed.is_router:
        warnings += [
            f"{given[name].source} has no effect: it is for one model, and there are many; set it in that model's"
            " section of --models-preset"
            for name in OF_ONE_MODEL
            if name in given
        ]
        return
    named = [given[name].source for name in MODEL_SOURCES if name in parsed.given]
    for name in _LISTS:
        if name in given:
            raise FlagError(
                f"{named[0]} names the only model, and {given[name].source} lists many; leave one out"
            )
    warnings += [
        f"{given[name].source} has no effect: {named[0]} names the only model"
        for name in ManyModels.__annotations__
        if name in given and given[name].value != given[name].flag.default
    ]


# For the served model and the draft model: the settings that name it by its repository and by its path, and those that
# belong to the repository.
_NAMES = (("hf_repo", "model", ("hf_repo", "hf_file")), ("hf_repo_draft", "model_draft", ("hf_repo_draft",)))


def _one_model(sources: Sequence[Sequence[Setting]], warnings: list[str]) -> list[Setting]:
    """Return the settings without those of a second model: if --hf-repo and --model are in the same source, --hf-repo
    wins, else the one in the later source. The same applies to a draft model."""
    settings = [one for source in sources for one in source]
    weights = {one.flag.dest: (i, one) for i, source in enumerate(sources) for one in source}
    for hub_name, path_name, of_hub in _NAMES:
        if hub_name not in weights or path_name not in weights:
            continue
        (hub_weight, hub), (path_weight, path) = weights[hub_name], weights[path_name]
        loser, winner = (hub, path) if path_weight > hub_weight else (path, hub)
        what = "model" if path_name == "model" else "draft model"
        warnings.append(f"{loser.source} is ignored: {winner.source} names the {what}")
        lost = of_hub if loser is hub else (path_name,)
        settings = [one for one in settings if one.flag.dest not in lost]
    return settings


def _choose_drafts(values: dict[str, Any], settings: Iterable[Setting], warnings: list[str]) -> None:
    """Let a draft model draft, unless --spec-type none is given; without one, warn about the flags that need it."""
    given = {one.flag.dest: one for one in settings}
    named = [given[name] for name in NAMED_BY if name in given]
    if named and "spec_types" in given and not values["spec_types"] and values["spec"] == "off":
        warnings += [f"{one.source} has no effect: {given['spec_types'].source} is none" for one in named]
        values |= dict.fromkeys(NAMED_BY)
    elif named and MODEL_TYPE not in values["spec_types"]:
        values["spec_types"] = (*values["spec_types"], MODEL_TYPE)
    elif not named:
        warnings += [
            f"{given[name].source} has no effect: there is no draft model; add -md or -hfd"
            for name in TUNED_BY
            if name in given and given[name].value != given[name].flag.default
        ]


def scan(argv: Sequence[str], table: Table) -> list[Setting] | Action:
    """Return the settings of a command line in order, or the first Action in it. Raises FlagError."""
    settings: list[Setting] = []
    rest = list(argv)[::-1]
    while rest:
        argument = rest.pop()
        name, entry, joined = _look_up(argument, table)
        flag, negated = entry
        if isinstance(flag.kind, Request | Preset) and joined is not None:
            raise FlagError(f"{name} takes no value; leave out '={joined}'")
        if isinstance(flag.kind, Request):
            return flag.kind.action
        if isinstance(flag.kind, Preset):
            stands_for = scan(flag.kind.arguments, table)
            assert not isinstance(stands_for, Action)
            settings += [msgspec.structs.replace(one, source=name) for one in stands_for]
            continue
        texts = _texts(name, flag, joined, rest, table)
        setting = read_setting(flag, name, texts, negated)
        if setting is not None:
            settings.append(setting)
    return settings


def merge(settings: Iterable[Setting], table: Table, warnings: list[str]) -> dict[str, Any]:
    """Return the value of every dest that works. The last setting wins, but repeated lists are concatenated. Raises
    FlagError for a flag whose feature is not available yet."""
    values = _defaults(table)
    begun: set[str] = set()  # the dests that no longer hold their default
    warned: set[str] = set()
    for flag, source, value in ((one.flag, one.source, one.value) for one in settings):
        if not isinstance(flag.status, Ready):
            if value == flag.default or value in flag.neutral:
                continue
            if isinstance(flag.status, Later):
                feature = flag.status.feature
                raise FlagError(
                    f"{source} needs {feature}, which this version of llamad does not have yet; leave it out"
                )
            if flag.dest not in warned:
                warned.add(flag.dest)
                warnings.append(f"{source} has no effect: {flag.status.reason}")
        elif flag.repeat and flag.dest in begun and value != ():
            values[flag.dest] = values[flag.dest] + value
        else:
            values[flag.dest] = value
            begun.add(flag.dest)
    return values


def _look_up(argument: str, table: Table) -> tuple[str, tuple[Flag, bool], str | None]:
    """Return the flag that an argument names, and the text after "=", if any."""
    if not argument.startswith("-") or argument == "-":
        raise FlagError(f"'{argument}' is not a flag; give the model's path with -m")
    for name, joined in ((argument, None), _split(argument)):
        # --ctx_size is common, also in llama.cpp's documentation.
        name = name.replace("_", "-") if name.startswith("--") else name
        entry = table.by_name.get(name)
        if entry is not None:
            return name, entry, joined
    name = _split(argument)[0]
    near = difflib.get_close_matches(name, list(table.by_name), n=1, cutoff=0.6)
    raise FlagError(f"unknown flag {name}; {f'did you mean {near[0]}?' if near else 'see --help'}")


def _split(argument: str) -> tuple[str, str | None]:
    name, equals, joined = argument.partition("=")
    return name, joined if equals else None


def _texts(name: str, flag: Flag, joined: str | None, rest: list[str], table: Table) -> list[str]:
    """Take a flag's values from the arguments that follow it, and return them."""
    if joined is not None:
        return [joined]
    texts: list[str] = []
    while len(texts) < flag.kind.takes:
        following = rest[-1] if rest else None
        if (
            following is not None
            and not _is_flag(following, table)
            and not (flag.bare is not None and following.startswith("-"))
        ):
            texts.append(rest.pop())
            if isinstance(flag.kind, Pair) and flag.kind.split(texts[0]) is not None:
                return texts[:1]
        elif flag.bare is not None:
            return [flag.bare]
        elif following is not None and following.startswith("--"):
            raise FlagError(f"{name} needs a value; if it is '{following}', write {name}={following}")
        else:
            need = "two values" if flag.kind.takes == 2 else "a value"
            raise FlagError(f"{name} needs {need}: {name} {flag.shown_metavar}")
    return texts


def _is_flag(text: str, table: Table) -> bool:
    return text.startswith("--") or text in table.by_name


def read_setting(flag: Flag, source: str, texts: Sequence[str], negated: bool) -> Setting | None:
    """Return the setting that the texts give, or None if they leave it unchanged. Raises FlagError."""
    try:
        if isinstance(flag.kind, Switch):
            value = _switch(flag.kind, texts, negated)
            return None if value is None else Setting(flag, source, value)
        if isinstance(flag.kind, Pair) and len(texts) == 2:
            return Setting(flag, source, flag.kind.both(*texts), tuple(texts))
        return Setting(flag, source, flag.kind.read(texts[0]), tuple(texts[:1]))
    except ValueError as error:
        # A secret must not reach a terminal or a log, so the error does not quote it.
        reason = flag.kind.secret_error if flag.secret else str(error)
        raise FlagError(f"{source}: {reason}") from None


def _switch(kind: Switch, texts: Sequence[str], negated: bool) -> Any:
    if not negated:
        return kind.read(texts[0]) if texts else kind.on
    if not texts:
        return kind.off
    # "--no-mmap=off" and LLAMA_ARG_NO_MMAP=0 say nothing about mmap: the default stays.
    return kind.off if kind.read(texts[0]) == kind.on else None


def _from_variables(
    variables: Mapping[str, Line], winners: Mapping[str, str], table: Table, warnings: list[str]
) -> list[Setting]:
    """Return the settings of variables that nothing with more weight overrides."""
    settings: dict[str, Setting] = {}
    for name, (flag, negated) in table.by_env.items():
        line = variables.get(name)
        if line is None or not line.text:
            continue  # many launchers write "not set" as an empty variable
        if flag.dest in winners:
            warnings.append(f"{line.source} is ignored: {winners[flag.dest]} wins")
            continue
        if flag.dest in settings:
            warnings.append(f"{line.source} is ignored: {settings[flag.dest].source} is set too and wins")
            continue
        setting = read_setting(flag, line.source, [line.text], negated)
        if setting is not None:
            settings[flag.dest] = setting
    return list(settings.values())


def _from_file(
    lines: Mapping[str, Line], winners: Mapping[str, str], table: Table, warnings: list[str]
) -> list[Setting]:
    for name, line in lines.items():
        if name in table.by_env and table.by_env[name][0].dest == "env_file":
            raise FlagError(f"{line.source}: a file cannot name another; put all variables into one")
        if name not in table.by_env and not name.startswith(ENV_PREFIX):
            warnings.append(f"{line.source} is ignored: no flag has this variable; set it in the environment")
    _warn_unknown(lines, table, warnings, lines)
    return _from_variables(lines, winners, table, warnings)


def _warn_unknown(
    names: Iterable[str], table: Table, warnings: list[str], lines: Mapping[str, Line] | None = None
) -> None:
    for name in names:
        if name.startswith(ENV_PREFIX) and name not in table.by_env:
            # Compared without the common prefix.
            known = {known.removeprefix(ENV_PREFIX): known for known in table.by_env}
            near = difflib.get_close_matches(name.removeprefix(ENV_PREFIX), list(known), n=1, cutoff=0.75)
            hint = f"did you mean {known[near[0]]}?" if near else "llamad does not know it"
            warnings.append(f"{lines[name].source if lines else name} is ignored: {hint}")


def _defaults(table: Table) -> dict[str, Any]:
    return {flag.dest: flag.default for flag in table.settings}


def _choose_slots(values: dict[str, Any], given: frozenset[str]) -> None:
    """Without -np, use a few slots that share one KV cache, but not more than the batch size, because a step needs a
    token for each slot."""
    if values["n_parallel"] < 0:
        values["n_parallel"] = min(SLOTS_AUTO, values["n_batch"])
        values["kv_unified"] = values["kv_unified"] or "kv_unified" not in given


def _settings(values: dict[str, Any], given: frozenset[str]) -> Settings:
    _choose_slots(values, given)
    options = {name: values[name] for name in WITH_FLAG}
    for name, value in options.items():
        if isinstance(value, tuple):
            options[name] = FIELDS[name].type(value)
    daemon, model = divided({name: value for name, value in values.items() if name not in options})
    on_disk = model["slot_save_path"] is not None or daemon["cache_disk"] is not None
    made = ModelSettings(
        **model,
        options=Options(**options),
        given=given.intersection(WITH_FLAG),
        keeps_ctx=False,
        inputs_on_device=None,
        wants_states=daemon["endpoint_slots"] or on_disk,
    )
    return Settings(DaemonSettings(**daemon), _sized(made, given))


def _sized(model: ModelSettings, given: frozenset[str]) -> ModelSettings:
    """Set the context size to the sum of the limits per slot, unless -c is given. `-c 0` counts as given."""
    if "n_ctx" in given:
        return msgspec.structs.replace(model, keeps_ctx=True)
    if model.kv_unified_per_slot == 0:
        return model
    n_ctx = min(model.n_parallel * model.kv_unified_per_slot, I32_MAX)
    return msgspec.structs.replace(model, n_ctx=n_ctx, keeps_ctx=True)


def _imply(values: dict[str, Any], given: frozenset[str]) -> None:
    """Set defaults that follow from other flags, as in llama.cpp's documentation."""
    if values["lora"] and "mmap" not in given:
        values["mmap"] = False
    if values["model_url"] is not None and "model" not in given:
        values["model"] = ""  # it is stored in the cache
    for name, dests in OF_ALL_TYPES.items():
        if name in given:
            values |= {dest: values[name] for dest in dests if dest not in given}
    # Lookup caches alone mean the type that reads them, as in the first servers that had them.
    has_cache = values["lookup_cache_static"] is not None or values["lookup_cache_dynamic"] is not None
    if has_cache and values["spec"] == "off" and NGRAM_CACHE not in values["spec_types"]:
        if "spec_types" in given and not values["spec_types"]:
            raise FlagError("--spec-type none: a lookup cache needs drafts; leave out one of the two")
        values["spec_types"] = (*values["spec_types"], NGRAM_CACHE)


def _unescape(values: dict[str, Any], given: frozenset[str]) -> None:
    if not values["escape"]:
        return
    for flag in TABLE.settings:
        if flag.escapes and flag.dest in given:
            values[flag.dest] = tuple(unescape(text) for text in values[flag.dest])


def unescape(text: str) -> str:
    """Return the text with its backslash escapes replaced; unknown escapes stay."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else _ESCAPED[match[2]], text)


def _check_together(settings: Settings) -> None:
    """Check settings that depend on each other. Raises FlagError."""
    daemon, model = settings.daemon, settings.model
    if (daemon.ssl_key_file is None) != (daemon.ssl_cert_file is None):
        raise FlagError("TLS needs both --ssl-key-file and --ssl-cert-file")
    if daemon.metrics_public and not daemon.endpoint_metrics:
        raise FlagError("--metrics-public needs --metrics")
    if daemon.proxy_protocol and not daemon.trusted_proxies:
        raise FlagError("--proxy-protocol needs --trusted-proxies, which names the proxies to trust")
    if daemon.proxy_protocol and daemon.ssl_cert_file is not None:
        raise FlagError(
            "--proxy-protocol does not work with TLS; let the proxy terminate it and leave out --ssl-cert-file"
        )
    if daemon.cache_disk is not None and model.cache_ram == 0:
        raise FlagError("--cache-disk needs --cache-ram, which is 0: prompts get to the disk from there")
    if model.grp_attn_n > 1 and model.grp_attn_w % model.grp_attn_n:
        raise FlagError(
            f"--grp-attn-w {model.grp_attn_w} must be a multiple of --grp-attn-n {model.grp_attn_n}"
        )
    if model.spec_fixed is not None and not model.wants_drafts:
        raise FlagError("--spec-fixed needs drafts: add --spec auto, --spec-type or --spec-default")
    if MODEL_TYPE in model.spec_types and model.model_draft is None and model.hf_repo_draft is None:
        raise FlagError(f"--spec-type {MODEL_TYPE} needs a draft model: name one with -md or -hfd")
    if model.hf_repo is not None and model.model_url is not None:
        raise FlagError("--hf-repo and --model-url both name the model; leave one out")
    if model.hf_file is not None and model.hf_repo is None:
        raise FlagError("--hf-file names a file of a repository; name that with --hf-repo")
    names = [one.name for one in model.lora if one.name]
    for name in names:
        if names.count(name) > 1:
            raise FlagError(f"--lora: two adapters are named '{name}'; requests could not tell them apart")
    for name, kind in (
        ("--cache-type-v", model.cache_type_v),
        ("--cache-type-v-draft", model.cache_type_v_draft),
    ):
        if model.flash_attn == "off" and kind not in _FLOAT_CACHES:
            raise FlagError(f"{name} {kind} needs flash attention: leave out --flash-attn off, or use f16")
    breakers = model.options.dry_sequence_breakers
    if len(breakers) > BREAKERS_MAX:
        raise FlagError(f"--dry-sequence-breaker is given {len(breakers)} times; use at most {BREAKERS_MAX}")
    for text in breakers:
        if "\0" in text or len(text.encode("utf-8", "replace")) > BREAKER_BYTES_MAX:
            raise FlagError(
                f"--dry-sequence-breaker: '{text[:40]}' must be at most {BREAKER_BYTES_MAX} bytes, none of them 0"
            )
