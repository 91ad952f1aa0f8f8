"""The table of endpoints, and what they share: routing, keys, errors, metrics.

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
    prometheus,
    props,
    streams,
    tokenize,
)
from llamad.api.native import models as model_list
from llamad.api.native import slots as slot_list
from llamad.api.ollama import embed, generate, pull
from llamad.api.ollama import models as ollama_models
from llamad.api.openai import chat, completions, control, input_tokens, responses, transcriptions
from llamad.api.request.errors import ApiError, shutting_down
from llamad.api.router import actions, event_stream, listing
from llamad.api.service import waking
from llamad.api.service.auth import Keys
from llamad.api.service.error_dialects import worded
from llamad.api.service.many_models import ManyModels
from llamad.api.service.model_table import ModelTable
from llamad.api.service.page import page_files
from llamad.api.service.service import Service
from llamad.api.service.waking import Handler
from llamad.api.state import sessions, slot_info, slots
from llamad.api.state.action import Held
from llamad.api.state.state_body import StateIntake
from llamad.api.vectors import classify, embeddings, rerank
from llamad.base.memory_budget import BudgetFull
from llamad.http.exchange import Exchange
from llamad.http.request import Request, Response
from llamad.http.router import SMALL_BODY, Intake, Route, Router

log = logging.getLogger("llamad.api")


class Api:
    def __init__(self, models: ModelTable, keys: Keys) -> None:
        self.models = models
        self.service = service = models.service
        models.set_keys(keys)
        self.router = Router()
        self._prefix = service.settings.api_prefix
        self.files = page_files(service.settings, self.error)
        if self.files is not None:
            page = Route("GET", "/", self.files.handle, public=True, body_max=SMALL_BODY)
            self.router.files = self.router.add(page)
        else:
            self._add("GET", "/", ollama_models.running, public=True, quiet=True)
        self._add_shared(models, service)
        self._add_state_endpoints(models)
        self._add_generating()
        self._add_others()

    def _add_shared(self, models: ModelTable, service: Service) -> None:
        """Add the endpoints that are about all models, or about none."""
        if isinstance(models, ManyModels):
            self._add_router(models)
        else:
            for path in ("/models", "/v1/models"):
                self._add("GET", path, partial(model_list.listing, models), public=True)
                self._add("GET", path + "/{id_model...}", partial(model_list.handle, models), public=True)
        is_public = service.settings.metrics_public
        self._add("GET", "/metrics", partial(prometheus.handle, models), public=is_public, quiet=True)
        self._add("GET", "/v1/loads", partial(load_report.handle, models), quiet=True)
        for path in ("/responses", "/v1/responses"):
            self._add("GET", path + "/{id_response}", partial(responses.retrieve, service))
            self._add("DELETE", path + "/{id_response}", partial(responses.delete, service), small=True)
        for path in ("/chat/completions", "/v1/chat/completions"):
            self._add("POST", path + "/control", partial(control.handle, service), small=True)
        for name, call in (("tags", ollama_models.tags), ("version", ollama_models.version)):
            self._add("GET", f"/api/{name}", partial(call, models), public=True)
        self._add("GET", "/api/ps", partial(ollama_models.ps, models), quiet=True)
        self._add("POST", "/api/show", partial(ollama_models.show, models), small=True)
        self._add("POST", "/api/pull", partial(pull.pull, models), small=True)
        self._add("DELETE", "/api/delete", partial(pull.delete, models), small=True)
        for name in ("copy", "create", "push"):
            self._add("POST", f"/api/{name}", pull.refuse)
        self._add("GET", "/v1/stream", partial(streams.read_on, service))
        self._add("DELETE", "/v1/stream", partial(streams.stop, service), small=True)
        self._add("POST", "/v1/streams/lookup", partial(streams.look_up, service))

    def _add_router(self, models: ManyModels) -> None:
        """Add the endpoints of a server with many models."""
        models.info = lambda entry: listing.entry_json(models, entry, has_key=False)
        for path in ("/models", "/v1/models"):
            self._add("GET", path, partial(listing.listing, models), public=True)
            self._add("GET", path + "/{id_model...}", partial(listing.one, models), public=True)
        self._add("POST", "/models", partial(actions.download, models), small=True)
        self._add("DELETE", "/models", partial(actions.remove, models), small=True)
        self._add("POST", "/models/load", partial(actions.load, models), small=True)
        self._add("POST", "/models/unload", partial(actions.unload, models), small=True)
        self._add("GET", "/models/sse", partial(event_stream.handle, models))

    def _of_daemon(
        self, of_router: Callable[[ManyModels, Exchange], None], of_model: Callable[[Exchange], None]
    ) -> Callable[[Exchange], None]:
        """Return the call of an endpoint that is about the daemon if it has many models and the query names none."""
        models = self.models
        if not isinstance(models, ManyModels):
            return of_model
        return lambda exchange: (
            of_model(exchange) if "model" in exchange.request.query else of_router(models, exchange)
        )

    def _add_state_endpoints(self, models: ModelTable) -> None:
        served, described = self._served, self._described
        for path in ("/health", "/v1/health"):
            call = self._of_daemon(listing.health, self._asked(health.handle))
            self._add("GET", path, call, public=True, quiet=True)
        call = self._of_daemon(listing.props, described(props.handle))
        self._add("GET", "/props", call, public=True)
        self._add("POST", "/props", described(props.set_props))
        self._add("GET", "/lora-adapters", described(lora_adapters.listing))
        self._add("POST", "/lora-adapters", described(lora_adapters.change), small=True)
        self._add("POST", "/v1/load_lora_adapter", served(lora_loading.load), small=True)
        self._add("POST", "/v1/unload_lora_adapter", described(lora_loading.unload), small=True)
        self._add("GET", "/slots", described(slot_list.listing))
        self._add("POST", "/slots/{id_slot}", served(slots.handle), intake=StateIntake(models))
        self._add("GET", "/v1/slots/{id_slot}/info", served(slot_info.handle))
        self._add("GET", "/sessions", described(sessions.listing))
        self._add("POST", "/sessions/{id_session}", served(sessions.handle), small=True)

    def _add_generating(self) -> None:
        served = self._served
        for path in ("/completion", "/completions"):
            self._add("POST", path, served(completion.handle))
        self._add("POST", "/infill", served(infill.handle))
        self._add("POST", "/v1/completions", served(completions.handle))
        for path in ("/chat/completions", "/v1/chat/completions"):
            self._add("POST", path, served(chat.handle))
        for path in ("/responses", "/v1/responses"):
            self._add("POST", path, served(responses.handle))
        for path in ("/audio/transcriptions", "/v1/audio/transcriptions"):
            self._add("POST", path, served(transcriptions.handle))
        self._add("POST", "/v1/messages", served(messages.handle))
        # A request may unload its model, so these wake it themselves.
        self._add("POST", "/api/chat", self._asked(generate.chat))
        self._add("POST", "/api/generate", self._asked(generate.generate))

    def _add_others(self) -> None:
        """Add the endpoints that only tokenize, render or compute vectors."""
        served, described = self._served, self._described
        self._add("POST", "/tokenize", described(tokenize.tokenize))
        self._add("POST", "/detokenize", described(tokenize.detokenize))
        self._add("POST", "/apply-template", described(apply_template.apply_template))
        for path in ("/chat/completions", "/v1/chat/completions"):
            self._add("POST", path + "/input_tokens", described(input_tokens.of_chat))
        for path in ("/responses", "/v1/responses"):
            self._add("POST", path + "/input_tokens", described(input_tokens.of_response))
        self._add("POST", "/v1/messages/count_tokens", described(messages.count_tokens))
        for path in ("/embedding", "/embeddings"):
            self._add("POST", path, served(embeddings.handle))
        self._add("POST", "/v1/embeddings", served(embeddings.handle_openai))
        self._add("POST", "/api/embed", self._asked(embed.embed))
        self._add("POST", "/api/embeddings", self._asked(embed.embeddings))
        for path in ("/rerank", "/reranking", "/v1/rerank", "/v1/reranking"):
            self._add("POST", path, served(rerank.handle))
        for path in ("/classify", "/v1/classify"):
            self._add("POST", path, served(classify.handle))

    def _asked(self, handler: Handler) -> Callable[[Exchange], None]:
        """Return the call that finds the model of a request and lets `handler` respond, whatever its state is."""
        models = self.models
        return lambda exchange: models.with_model(exchange, handler)

    def _described(self, handler: Handler) -> Callable[[Exchange], None]:
        """Return the call that finds the model of a request and lets `handler` respond without the model's engine. It
        does not wake a model, and is not counted as a use."""
        return self._asked(lambda served, exchange: waking.describe(served, exchange, handler))

    def _served(self, handler: Handler) -> Callable[[Exchange], None]:
        """Return the call that finds the model of a request and lets `handler` serve it with the model's engine."""
        return self._asked(lambda served, exchange: waking.serve(served, exchange, handler))

    def _add(
        self,
        method: str,
        path: str,
        call: Callable[[Exchange], None],
        public: bool = False,
        small: bool = False,
        intake: Intake | None = None,
        quiet: bool = False,
    ) -> None:
        """Add a route. A GET route, or a `small` one, rejects a body that is not small before it is read."""
        body_max = SMALL_BODY if small or method == "GET" else 0
        self.router.add(Route(method, path, call, public, body_max=body_max, intake=intake, quiet=quiet))

    def close(self) -> None:
        if self.files is not None:
            self.files.close()

    # Called by the HTTP layer.

    def on_head(self, request: Request) -> Response | None:
        """Find the route and check the key. A request that cannot be served is rejected before its body is read."""
        if self._prefix:
            # The prefix is removed, so that routes do not contain it.
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
        keys = self.service.keys
        if keys and not route.public:
            name = keys.find(request)
            if name is None:
                refusal = ApiError(401, "Invalid API Key", headers=(("WWW-Authenticate", "Bearer"),))
                return worded(refusal, request)
            request.key_name = name
        if self.service.is_draining and not route.pattern.endswith("/health"):
            return worded(shutting_down(), request)
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
        self.service.uses.end(exchange)
        self.service.metrics.on_done(exchange, seconds)

    def error(self, status: int, message: str, request: Request | None = None) -> Response:
        return worded(ApiError(status, message), request)
