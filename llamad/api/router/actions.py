"""POST /models/load and /models/unload, POST /models (download) and DELETE /models.

Runs on the event loop; a hub is asked in a thread. The words of errors are llama-server's, because clients search for
them, with a reason after them.
"""

from __future__ import annotations

from functools import partial

import msgspec

from llamad.api.request.body import Body
from llamad.api.request.errors import ApiError, bad
from llamad.api.service.body_reading import with_body
from llamad.api.service.many_models import ManyModels
from llamad.flags.types.model_files import HubName
from llamad.http.exchange import Exchange
from llamad.http.request import Response

_SUCCESS = b'{"success":true}'


class ModelRequest(msgspec.Struct):
    model: str


_REQUEST = Body(ModelRequest)


def _named(body: bytes | memoryview) -> str:
    return _REQUEST.decode(body).model


def load(models: ManyModels, exchange: Exchange) -> None:
    """POST /models/load: start to load a model. It answers at once; the status says when the model serves."""
    with_body(models.service, exchange, _named, partial(_load, models, exchange))


def _load(models: ManyModels, exchange: Exchange, name: str) -> None:
    entry = models.catalogue.find(name)
    if entry is None:
        raise ApiError(404, f"model is not found: {name!r}")
    engine_id = models.engine_id(entry)
    if models.is_running(entry) and not models.fleet.is_unloading(engine_id):
        raise bad("model is already running")
    models.fleet.load(engine_id)
    exchange.send(Response(200, _SUCCESS))


def unload(models: ManyModels, exchange: Exchange) -> None:
    """POST /models/unload: unload a model once its running requests have ended, or cancel its download."""
    with_body(models.service, exchange, _named, partial(_unload, models, exchange))


def _unload(models: ManyModels, exchange: Exchange, name: str) -> None:
    if name in models.downloads:
        models.service.spawn(exchange, _cancel(models, exchange, name))
        return
    entry = models.catalogue.find(name)
    if entry is None:
        raise bad(f"model is not found: {name!r}")
    if not models.is_running(entry):
        raise bad("model is not running")
    models.fleet.unload(models.engine_id(entry))
    exchange.send(Response(200, _SUCCESS))


async def _cancel(models: ManyModels, exchange: Exchange, name: str) -> None:
    await models.downloads.cancel(name)
    exchange.send(Response(200, _SUCCESS))


def download(models: ManyModels, exchange: Exchange) -> None:
    """POST /models: download a model of Hugging Face. It answers once the hub has confirmed that there is one."""
    with_body(models.service, exchange, _named, partial(_download, models, exchange))


def _download(models: ManyModels, exchange: Exchange, name: str) -> None:
    try:
        name = HubName().read(name)
    except ValueError as error:
        raise bad(f'"model": {error}') from None
    if name in models.downloads:
        raise bad(f"{name} is being downloaded already")
    if models.catalogue.find(name) is not None:
        raise bad(f"{name} exists already; GET /models lists it")
    models.service.spawn(exchange, _begin_download(models, exchange, name))


async def _begin_download(models: ManyModels, exchange: Exchange, name: str) -> None:
    await models.begin_download(name)
    exchange.send(Response(200, _SUCCESS))


def remove(models: ManyModels, exchange: Exchange) -> None:
    """DELETE /models?model=ID: remove the files of a model in the cache."""
    name = exchange.request.query.get("model", "")
    if not name:
        raise bad('"model" is missing in the query')
    models.service.spawn(exchange, _remove(models, exchange, name))


async def _remove(models: ManyModels, exchange: Exchange, name: str) -> None:
    await models.remove_files(name)
    exchange.send(Response(200, _SUCCESS))
