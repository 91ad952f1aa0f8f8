"""POST /api/pull and DELETE /api/delete of a server with many models, and Ollama's other endpoints for models, which
are refused.

Runs on the event loop. Downloads are those of POST /models. One goes on if its client leaves.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from llamad.api.ollama.lines import NDJSON
from llamad.api.ollama.request import bare_name
from llamad.api.request.body import Body
from llamad.api.request.errors import ApiError, bad
from llamad.api.service.body_reading import with_body
from llamad.api.service.error_dialects import ollama_body, ollama_response
from llamad.api.service.many_models import ManyModels
from llamad.api.service.model_table import ModelTable
from llamad.flags.types.model_files import HubName
from llamad.http.exchange import Exchange
from llamad.http.request import Response
from llamad.models.fleet.model_events import READERS_MAX, ModelEvent

_SUCCESS = {"status": "success"}
_MANIFEST = {"status": "pulling manifest"}

_encode = msgspec.json.Encoder().encode


class PullRequest(Struct):
    model: str = ""
    name: str = ""  # its older name
    stream: bool = True
    insecure: bool = False


_BODY = Body(PullRequest)


def _line(status: dict[str, Any]) -> bytes:
    return bytes(_encode(status)) + b"\n"


class Pull:
    """One client that waits for a download. `service.streams` repeats the last line while nothing arrives."""

    def __init__(self, models: ManyModels, exchange: Exchange, name: str, *, streams: bool) -> None:
        self._models = models
        self._exchange = exchange
        self._name = name
        self._streams = streams
        self._last = _MANIFEST
        self._t_written = exchange.request.t_start
        exchange.on_abort = self.close
        models.events.add(self.tell)
        models.service.streams.add(self)
        if streams:
            exchange.begin(200, NDJSON, (), _line(_MANIFEST))

    def tell(self, event: ModelEvent) -> None:
        if self._exchange.closed:
            self.close()
        elif event.model != self._name:
            return
        elif event.event == "download_progress" and event.data is not None:
            for file, progress in event.data["progress"].items():
                counts = {"digest": file, "total": progress["total"], "completed": progress["done"]}
                self._show({"status": f"pulling {file}", **counts})
        elif event.event == "download_finished":
            self._end(None)
        elif event.event == "download_failed" and event.data is not None:
            self._end(ApiError(500, str(event.data["reason"])))

    def _show(self, status: dict[str, Any]) -> None:
        self._last = status
        if self._streams and not self._exchange.paused:
            self._exchange.write(_line(status))

    def tick(self, now: float) -> None:
        """Keep a silent connection alive."""
        seconds = self._models.service.settings.ping_seconds
        if self._exchange.closed:
            self.close()
        elif self._models.service.is_draining:
            self._end(ApiError(503, "The server is shutting down; pull again to go on with the download"))
        elif 0 < seconds <= now - self._t_written:
            self._t_written = now
            self._show(self._last)

    def _end(self, error: ApiError | None) -> None:
        self.close()
        if self._streams:
            self._exchange.end(_line(_SUCCESS) if error is None else ollama_body(error) + b"\n")
        else:
            self._exchange.send(Response(200, _encode(_SUCCESS)) if error is None else ollama_response(error))

    def close(self) -> None:
        self._models.events.remove(self.tell)
        self._models.service.streams.discard(self)


def _named(body: PullRequest) -> str:
    """Return the name of a model of Hugging Face. Raises a 400."""
    name = bare_name(body.model or body.name)
    if not name:
        raise bad('"model" is missing')
    try:
        return HubName().read(name)
    except ValueError as error:
        raise bad(f'"model": {error}; Ollama\'s own library cannot be read') from None


def pull(models: ModelTable, exchange: Exchange) -> None:
    """POST /api/pull: download a model of Hugging Face, unless the server has it."""
    with_body(models.service, exchange, _BODY.decode, partial(_pull, _router(models), exchange))


def _pull(models: ManyModels, exchange: Exchange, body: PullRequest) -> None:
    name = _named(body)
    if models.catalogue.find(name) is not None and name not in models.downloads:
        done = _line(_SUCCESS) if body.stream else _encode(_SUCCESS)
        exchange.send(Response(200, done, NDJSON) if body.stream else Response(200, done))
    elif models.events.is_full:
        raise ApiError(429, f"{READERS_MAX} clients read the events already, the maximum; close one of them")
    else:
        models.service.spawn(exchange, _begin(models, exchange, name, streams=body.stream))


async def _begin(models: ManyModels, exchange: Exchange, name: str, *, streams: bool) -> None:
    if name not in models.downloads:
        await models.begin_download(name)
    if not exchange.closed:
        Pull(models, exchange, name, streams=streams)


def delete(models: ModelTable, exchange: Exchange) -> None:
    """DELETE /api/delete: remove the files of a model that was downloaded."""
    with_body(models.service, exchange, _BODY.decode, partial(_delete, _router(models), exchange))


def _delete(models: ManyModels, exchange: Exchange, body: PullRequest) -> None:
    name = bare_name(body.model or body.name)
    if not name:
        raise bad('"model" is missing')
    if name not in models.downloads:
        name = models.entry(name).id
    models.service.spawn(exchange, _remove(models, exchange, name))


async def _remove(models: ManyModels, exchange: Exchange, name: str) -> None:
    await models.remove_files(name)
    exchange.send(Response(200, b""))


def _router(models: ModelTable) -> ManyModels:
    if not isinstance(models, ManyModels):
        raise ApiError(
            501, "This server has one model; start llamad without -m and -hf to download and delete models"
        )
    return models


def refuse(exchange: Exchange) -> None:
    """POST /api/copy, /api/create and /api/push."""
    raise ApiError(
        501,
        "Models are not copied, created or pushed here; names, settings and adapters of a model are a section of"
        " --models-preset",
    )
