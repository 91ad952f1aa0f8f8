"""Decodes the body of a generation request into options, with the server's own as defaults.

Runs on the event loop. Most requests give only a few of the more than fifty options: the decoder, in C, fills in the
others, which are computed once per model.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, TypeVar, cast, get_type_hints

import msgspec

from llamad.api.request import checks, logit_bias, structured_options, system_prompt, triggers
from llamad.api.request import prompt as prompts
from llamad.api.request.body import Body, Refused
from llamad.api.request.cache_hints import CacheHint
from llamad.api.request.ignored_fields import Hosted, LeftOut
from llamad.api.request.prompt import Prompts
from llamad.api.request.triggers import Waits
from llamad.flags.settings import ModelSettings
from llamad.flags.types.speculation import MODEL_TYPE
from llamad.options.from_model import defaults_in
from llamad.options.option import LEFT_OUT, defaults_of
from llamad.options.table import FIELDS, Options
from llamad.options.values import (
    AdapterScales,
    Biases,
    ResponseFields,
    Samplers,
    SequenceBreakers,
    Stops,
    SystemPrompt,
    TokenIds,
)
from llamad.protocol.model_info import Model

UINT32_MAX = 2**32 - 1


class StreamOptions(msgspec.Struct):
    include_usage: bool = False


class GenerationRequest(Options, kw_only=True):
    """The body of a generation request."""

    # Names of n_predict; the first one that a request has wins.
    LIMITS: ClassVar[tuple[str, ...]] = ("n_predict", "max_tokens")
    # Fields that this endpoint rejects, and the error messages.
    REFUSED: ClassVar[Mapping[str, str]] = {}
    # Whether answers are guarded against loops by default.
    GUARDED: ClassVar[bool] = False
    # The fields that this endpoint ignores.
    HOSTED: ClassVar[Hosted] = Hosted()

    model: str | None = None  # the name of the model, or of one of its adapters
    grammar_lazy: bool = False
    grammar_triggers: list[Any] = msgspec.field(default_factory=list)
    preserved_tokens: tuple[str, ...] = ()
    # Clients cannot set these three: _READERS replaces what they send with an empty object.
    cache_hint: CacheHint | None = None
    left_out: LeftOut = msgspec.field(default_factory=LeftOut)
    waits: Waits | None = None

    @property
    def shows_markers(self) -> bool:
        return self.waits is not None and self.waits.shows_markers

    def take_aliases(self) -> None:
        """Set the options for which this endpoint has another name."""


T = TypeVar("T", bound=GenerationRequest)


class Defaults:
    """The server's options, which are the defaults of all requests to a model. They come from the flags, else from the
    model's file. `warnings` are about the options in the file."""

    __slots__ = ("_bodies", "_n_predict", "model", "options", "settings", "warnings")

    def __init__(self, settings: ModelSettings, model: Model) -> None:
        self.model = model
        carried, self.warnings = defaults_in(model.info.sampling)
        self.options = msgspec.structs.replace(
            settings.options, **{name: value for name, value in carried.items() if name not in settings.given}
        )
        self._bodies: dict[type[GenerationRequest], Body[Any]] = {}
        self._clamp(self.options)
        self._n_predict = self.options.n_predict
        self.apply(settings)

    def apply(self, settings: ModelSettings) -> None:
        """Change the limits. The decoders of bodies stay, because making them again would delay all requests."""
        self.settings = settings
        cap = settings.n_predict_max
        self.options.n_predict = cap if cap and not 0 <= self._n_predict <= cap else self._n_predict

    def decode(self, struct: type[T], data: bytes | memoryview) -> T:
        """Return the request's options, with the server's as defaults. Raises ApiError for any that cannot be
        applied."""
        body = self._bodies.get(struct)
        if body is None:
            body = self._bodies[struct] = Body(self._with_defaults(struct), self.special)
        request: T = body.decode(data)
        self._finish(request)
        return request

    def _with_defaults(self, struct: type[T]) -> type[T]:
        """Return the same struct, with the server's options as defaults and the rejected fields as Refused."""
        hints = get_type_hints(struct, include_extras=True)
        defaults = defaults_of(struct)
        defaults |= msgspec.structs.asdict(self.options) | dict.fromkeys(_NOT_GIVEN, LEFT_OUT)
        for name, why in struct.REFUSED.items():
            hints[name] = Annotated[Refused, msgspec.Meta(description=why)]
        hosted = {name: hints.get(name, Any) for name in struct.HOSTED.fields}
        hints |= hosted
        own = (field.attribute for field in FIELDS.values())
        names = dict.fromkeys((*own, *struct.REFUSED, *hosted))
        fields = [(name, hints[name], defaults.get(name)) for name in names]
        return cast("type[T]", msgspec.defstruct(struct.__name__, fields, bases=(struct,), kw_only=True))

    def special(self, type: Any, value: Any) -> Any:
        """Decode a value of a special type; this is the decoder's hook. null, and the types that body.py handles, are
        left to the second reading."""
        if value is None or type not in _READERS:
            raise ValueError
        return _READERS[type](value, self)

    def _finish(self, request: GenerationRequest) -> None:
        """Check and complete the options as far as the ranges of the table cannot express it. Raises ApiError."""
        settings = self.settings
        request.HOSTED.take_fields(request, request.left_out)
        request.take_aliases()
        request.waits = triggers.read(
            request.grammar_lazy,
            request.grammar_triggers,
            request.preserved_tokens,
            self.model,
            request.left_out,
        )
        request.grammar_triggers = []  # they may be large, and are no longer needed
        seed = request.seed
        if not 0 <= seed < UINT32_MAX:
            # OpenAI's seeds have 64 bits, the generator's have 32.
            request.seed = seed % UINT32_MAX if seed > UINT32_MAX else secrets.randbelow(UINT32_MAX)
        self._clamp(request)
        request.n_predict = self._limit(request)
        if request.loop_guard == LEFT_OUT:
            request.loop_guard = self._is_guarded(request)
        if request.n_cmpl != LEFT_OUT:
            request.n = request.n_cmpl
        if request.n > settings.n_max:
            name = "n" if request.n_cmpl == LEFT_OUT else "n_cmpl"
            raise checks.over_cap(name, settings.n_max, "--n-max")
        if request.n_probs > settings.n_probs_max:
            raise checks.over_cap("n_probs", settings.n_probs_max, "--n-probs-max")
        slot = request.slot_id if request.id_slot == LEFT_OUT else request.id_slot
        # A slot that does not exist means any slot, as in llama-server, because plugins of editors count the number up.
        request.id_slot = slot if 0 <= slot < settings.n_parallel else -1
        if request.t_max_predict_ms < 0:
            request.t_max_predict_ms = 0
        # Drafts from text have no probabilities.
        if request.speculative_p_min > 0 and MODEL_TYPE not in settings.spec_types:
            request.left_out.add("speculative.p_min")

    def _clamp(self, options: Options) -> None:
        """Limit the lengths of the penalties. -1 means the context size; more would only take memory."""
        n_ctx = self.model.n_ctx_slot
        if not 0 <= options.repeat_last_n <= n_ctx:
            options.repeat_last_n = n_ctx
        if not 0 <= options.dry_penalty_last_n <= n_ctx:
            options.dry_penalty_last_n = n_ctx

    def _is_guarded(self, request: GenerationRequest) -> bool:
        if "loop_guard" in self.settings.given:
            return self.options.loop_guard
        return request.GUARDED and not request.ignore_eos

    def _limit(self, request: GenerationRequest) -> int:
        for name in request.LIMITS:
            n: int = getattr(request, name)
            if n != LEFT_OUT:
                break
        else:
            return self.options.n_predict
        if n == -1:  # the request has no limit of its own, so the server's stays, as in llama-server
            return self.options.n_predict
        cap = self.settings.n_predict_max
        if cap and n > cap:
            raise checks.over_cap(name, cap, "--n-predict-max")
        return cap if cap and n < 0 else n


# Options whose value depends on whether the request gives them: those with aliases, and one whose
# default differs between endpoints.
_NOT_GIVEN = ("id_slot", "loop_guard", "n_predict")

_READERS: dict[Any, Callable[[Any, Defaults], Any]] = {
    AdapterScales: lambda value, own: structured_options.adapter_scales(value),
    Biases: lambda value, own: logit_bias.parse(value, own.model),
    CacheHint: lambda value, own: CacheHint(),
    LeftOut: lambda value, own: LeftOut(),
    SequenceBreakers: lambda value, own: structured_options.breakers(value),
    Prompts: lambda value, own: prompts.split(value, own.settings.prompts_max, own.model.n_ctx_slot),
    ResponseFields: lambda value, own: structured_options.response_fields(value),
    Samplers: lambda value, own: structured_options.samplers(value),
    Stops: lambda value, own: structured_options.stops(value, own.settings.stop_max),
    SystemPrompt: lambda value, own: system_prompt.parse(value, own.settings),
    TokenIds: lambda value, own: structured_options.penalty_prompt(value, own.model),
    Waits: lambda value, own: Waits(),
}
