"""Owns the table of endpoints, and what they share: routing, keys, errors, metrics.

Implements the HTTP layer's App on the event loop. Must not touch a socket or llama.cpp.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from llamad.api.anthropic import messages
from llamad.api.native import (
    apply_template,
    completion,
    health,
    infill,
    load_report,
    lora_adapters,
    lora_loading,
    models,
    prometheus,
    props,
    streams,
    tokenize,
)
from llamad.api.native import slots as slot_list
from llamad.api.openai import chat, completions, control, input_tokens, responses, transcriptions
from llamad.api.request.errors import ApiError
from llamad.api.service.auth import Keys
from llamad.api.service.error_dialects import worded
from llamad.api.service.page import page_files
from llamad.api.service.service import Service
from llamad.api.state import sessions, slot_info, slots
from llamad.api.state.action import Held
from llamad.api.state.state_body import StateIntake
from llamad.api.vectors import classify, embeddings, rerank
from llamad.base.memory_budget import BudgetFull
from llamad.http.exchange import Exchange
from llamad.http.request import Request, Response
from llamad.http.router import SMALL_BODY, Intake, Route, Router
from llamad.models.host import State

log = logging.getLogger("llamad.api")

_DRAINING = State.DRAINING  # read on every request; an Enum lookup is slow

Handler = Callable[[Service, Exchange], None]


class Api:
    def __init__(self, service: Service, keys: Keys) -> None:
        self.service = service
        self.set_keys(keys)
        self.router = Router()
        self._prefix = service.settings.api_prefix
        service.find_key = self._find_key
        self.files = page_files(service.settings, self.error)
        if self.files is not None:
            page = Route("GET", "/", self.files.handle, public=True, body_max=SMALL_BODY)
            self.router.files = self.router.add(page)
        for path in ("/health", "/v1/health"):
            self._add("GET", path, health.handle, public=True, quiet=True)
        for path in ("/models", "/v1/models"):
            self._add("GET", path, models.listing, public=True)
            self._add("GET", path + "/{id_model...}", models.handle, public=True)
        self._add("GET", "/props", props.handle, public=True)
        self._add("POST", "/props", props.set_props)
        self._add("GET", "/lora-adapters", lora_adapters.listing)
        self._add("POST", "/lora-adapters", lora_adapters.change, small=True)
        self._add("POST", "/v1/load_lora_adapter", lora_loading.load, small=True)
        self._add("POST", "/v1/unload_lora_adapter", lora_loading.unload, small=True)
        self._add("GET", "/slots", slot_list.listing)
        is_public = service.settings.metrics_public
        self._add("GET", "/metrics", prometheus.handle, public=is_public, quiet=True)
        self._add("GET", "/v1/loads", load_report.handle, quiet=True)
        self._add("POST", "/tokenize", tokenize.tokenize)
        self._add("POST", "/detokenize", tokenize.detokenize)
        for path in ("/completion", "/completions"):
            self._add("POST", path, completion.handle)
        self._add("POST", "/infill", infill.handle)
        for path in ("/embedding", "/embeddings"):
            self._add("POST", path, embeddings.handle)
        self._add("POST", "/v1/embeddings", embeddings.handle_openai)
        for path in ("/rerank", "/reranking", "/v1/rerank", "/v1/reranking"):
            self._add("POST", path, rerank.handle)
        for path in ("/classify", "/v1/classify"):
            self._add("POST", path, classify.handle)
        self._add("POST", "/v1/completions", completions.handle)
        for path in ("/chat/completions", "/v1/chat/completions"):
            self._add("POST", path, chat.handle)
            self._add("POST", path + "/input_tokens", input_tokens.of_chat)
            self._add("POST", path + "/control", control.handle, small=True)
        for path in ("/responses", "/v1/responses"):
            self._add("POST", path, responses.handle)
            self._add("POST", path + "/input_tokens", input_tokens.of_response)
            self._add("GET", path + "/{id_response}", responses.retrieve)
            self._add("DELETE", path + "/{id_response}", responses.delete, small=True)
        for path in ("/audio/transcriptions", "/v1/audio/transcriptions"):
            self._add("POST", path, transcriptions.handle)
        self._add("GET", "/v1/stream", streams.read_on)
        self._add("DELETE", "/v1/stream", streams.stop, small=True)
        self._add("POST", "/v1/streams/lookup", streams.look_up)
        self._add("POST", "/v1/messages", messages.handle)
        self._add("POST", "/v1/messages/count_tokens", messages.count_tokens)
        self._add("POST", "/apply-template", apply_template.apply_template)
        self._add("POST", "/slots/{id_slot}", slots.handle, intake=StateIntake(service))
        self._add("GET", "/v1/slots/{id_slot}/info", slot_info.handle)
        self._add("GET", "/sessions", sessions.listing)
        self._add("POST", "/sessions/{id_session}", sessions.handle, small=True)

    def _add(
        self,
        method: str,
        path: str,
        handler: Handler,
        public: bool = False,
        small: bool = False,
        intake: Intake | None = None,
        quiet: bool = False,
    ) -> None:
        """A GET route, or a `small` one, takes at most a small body; a larger one is rejected before it is read."""
        body_max = SMALL_BODY if small or method == "GET" else 0
        call = partial(handler, self.service)
        self.router.add(Route(method, path, call, public, body_max=body_max, intake=intake, quiet=quiet))

    def set_keys(self, keys: Keys) -> None:
        """Accept these keys from now on, and no others."""
        self.keys = keys
        self.service.key_states.set_keys(keys.names)

    def _find_key(self, request: Request) -> str | None:
        return self.keys.find(request) if self.keys else ""

    def close(self) -> None:
        if self.files is not None:
            self.files.close()

    # Called by the HTTP layer.

    def on_head(self, request: Request) -> Response | None:
        """Find the route and check the key; what cannot be served is rejected before the body is read."""
        if self._prefix:
            # Below, every path is that of its endpoint.
            if request.path == self._prefix and self.files is not None and request.method in ("GET", "HEAD"):
                return self.files.to_folder(request)
            if not request.path.startswith(self._prefix + "/"):
                return self.error(404, "File Not Found", request)
            request.path = request.path[len(self._prefix) :]
        route = request.route = self.router.find_fixed(request)
        if route is None:
            refused = self.router.resolve(request, partial(self.error, request=request))
            if refused is not None:
                return refused
            route = request.route
            assert route is not None
        if self.keys and not route.public:
            name = self.keys.find(request)
            if name is None:
                refusal = ApiError(401, "Invalid API Key", headers=(("WWW-Authenticate", "Bearer"),))
                return worded(refusal, request)
            request.key_name = name
        if self.service.host.state is _DRAINING and not route.pattern.endswith("/health"):
            return worded(self.service.not_ready(), request)
        if route.intake is not None:
            try:
                route.intake.check(request)
            except ApiError as error:
                return worded(error, request)
        return None

    def body_max(self, request: Request) -> int:
        route: Route | None = request.route
        if route is None:
            return 0
        if route.intake is not None:
            return route.intake.limit(request)
        return min(route.body_max, self.service.settings.body_max_bytes)

    def body_buffer(self, request: Request, length: int) -> memoryview | Response | None:
        route: Route | None = request.route
        if route is None or route.intake is None:
            return None
        try:
            return route.intake.buffer(request, length)
        except ApiError as error:
            return worded(error, request)

    def on_request(self, exchange: Exchange) -> None:
        route = exchange.request.route
        assert route is not None
        try:
            route.handler(exchange)
        except ApiError as error:
            exchange.fail(worded(error, exchange.request))
        except BudgetFull:
            exchange.fail(worded(self.service.memory_full(), exchange.request))

    def on_done(self, exchange: Exchange, seconds: float) -> None:
        held = exchange.request.buffer
        if held is not None and isinstance(held, Held):
            held.end()
        self.service.metrics.on_done(exchange, seconds)

    def error(self, status: int, message: str, request: Request | None = None) -> Response:
        return worded(ApiError(status, message), request)
