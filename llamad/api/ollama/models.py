"""GET /api/tags, /api/ps and /api/version, POST /api/show: the models of this server, in Ollama's format. GET / of a
server without a page.

Runs on the event loop. A model that is not loaded is described by the head of its file; nothing is loaded for it.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from llamad.api.native.models import short_count
from llamad.api.ollama.keep_alive import limit_of
from llamad.api.ollama.lines import stamp
from llamad.api.ollama.request import LATEST, bare_name
from llamad.api.request.body import Body
from llamad.api.request.errors import ApiError, bad
from llamad.api.service.many_models import ManyModels
from llamad.api.service.model_table import ModelTable
from llamad.api.service.served_model import ServedModel
from llamad.http.exchange import Exchange
from llamad.http.request import Request, Response
from llamad.models.host import Host
from llamad.models.host_state import State

# The version of Ollama whose API this is. Clients compare it with the one that has what they need.
VERSION = "0.13.0"
_MACHINE = "host"  # where an engine counts what is on no GPU
_FOREVER = "9999-12-31T23:59:59Z"

_encode = msgspec.json.Encoder().encode


class ShowRequest(Struct):
    model: str = ""
    name: str = ""  # its older name
    verbose: bool = False


_SHOW = Body(ShowRequest)


class Described(NamedTuple):
    """What is known of a model, loaded or not. `served` is None if it was never needed."""

    name: str
    served: ServedModel | None
    architecture: str = ""
    n_params: int = 0
    size: int = 0
    ftype: str = ""
    n_ctx_train: int = 0
    n_embd: int = 0
    n_vocab: int = 0
    modalities: tuple[str, ...] = ("text",)

    @property
    def tagged_name(self) -> str:
        """Return the name with a tag, as Ollama's clients expect it."""
        return self.name if ":" in self.name else self.name + LATEST

    def entry(self) -> dict[str, Any]:
        """Return the fields that every list has. Ollama's digest is of a manifest, which there is not here; this one
        changes with the model, too."""
        digest = hashlib.sha256(
            f"{self.name}\n{self.size}\n{self.n_params}\n{self.ftype}".encode()
        ).hexdigest()
        return {
            "name": self.tagged_name,
            "model": self.tagged_name,
            "size": self.size,
            "digest": digest,
            "details": self.details(),
        }

    def details(self) -> dict[str, Any]:
        return {
            "parent_model": "",
            "format": "gguf",
            "family": self.architecture,
            "families": [self.architecture] if self.architecture else [],
            "parameter_size": short_count(self.n_params),
            "quantization_level": self.ftype,
        }


def _of_served(served: ServedModel, name: str) -> Described:
    media, model = served.media, served.host.model
    modalities = ["text"]
    if media is not None:
        modalities += (["image"] if media.sees else []) + (["audio"] if media.hears else [])
    if model is None:
        return Described(name, served, modalities=tuple(modalities))
    info = model.info
    return Described(
        name,
        served,
        info.arch,
        info.n_params,
        info.size,
        info.ftype,
        info.n_ctx_train,
        info.n_embd,
        info.n_vocab,
        tuple(modalities),
    )


def _every(models: ModelTable, request: Request) -> Iterator[Described]:
    """Yield the models of the server, with names that the client of the request may see."""
    if not isinstance(models, ManyModels):
        for served in models:
            yield _of_served(served, served.name_for(request))
        return
    for entry in models.catalogue.entries.values():
        if entry.is_hidden:
            continue
        known, head = models.known(entry), models.head(entry)
        if known is not None and known.host.model is not None:
            yield _of_served(known, entry.id)
        elif head is None:
            yield Described(entry.id, known, modalities=models.modalities(entry))
        else:
            yield Described(
                entry.id,
                known,
                head.architecture,
                head.n_params,
                head.size,
                "",
                head.n_ctx_train,
                head.n_embd,
                head.n_vocab,
                models.modalities(entry),
            )


def running(exchange: Exchange) -> None:
    """GET / of a server without a page: what clients of Ollama look for there."""
    exchange.send(Response(200, b"Ollama is running", "text/plain; charset=utf-8"))


def version(models: ModelTable, exchange: Exchange) -> None:
    """GET /api/version."""
    exchange.send(Response(200, _encode({"version": VERSION, "build_info": models.service.build_info})))


def tags(models: ModelTable, exchange: Exchange) -> None:
    """GET /api/tags: all models."""
    modified = stamp(models.service.t_created)
    listed = [{**one.entry(), "modified_at": modified} for one in _every(models, exchange.request)]
    exchange.send(Response(200, _encode({"models": listed})))


def ps(models: ModelTable, exchange: Exchange) -> None:
    """GET /api/ps: the models that are loaded."""
    listed = [
        {
            **one.entry(),
            **_sizes(one, one.served.host),
            "expires_at": _expiry(one.served),
            "context_length": one.served.described().n_ctx_slot,
        }
        for one in _every(models, exchange.request)
        if one.served is not None and one.served.host.state is State.READY
    ]
    exchange.send(Response(200, _encode({"models": listed})))


def _sizes(one: Described, host: Host) -> dict[str, int]:
    """Return the bytes of a loaded model, and those on GPUs: what its engine has measured, or else its weights."""
    if host.measured:
        size = sum(host.measured.values())
        return {"size": size, "size_vram": size - host.measured.get(_MACHINE, 0)}
    return {"size": one.size, "size_vram": one.size if host.has_device else 0}


def _expiry(served: ServedModel) -> str:
    """Return when the model sleeps if nobody uses it until then."""
    limit = limit_of(served)
    if limit < 0 or limit == math.inf:
        return _FOREVER
    idle = 0.0 if served.usage.n_active else time.monotonic() - served.usage.last_used
    return stamp(time.time() + limit - idle)


def show(models: ModelTable, exchange: Exchange) -> None:
    """POST /api/show."""
    body = _SHOW.decode(exchange.request.body)
    one = _named(models, exchange.request, body.model or body.name)
    shown = {
        "modelfile": f"# {one.tagged_name}\nFROM {one.name}\n",
        "parameters": "",
        "template": "",
        "details": one.details(),
        "model_info": {
            "general.architecture": one.architecture,
            "general.basename": one.name,
            "general.parameter_count": one.n_params,
            f"{one.architecture}.context_length": one.n_ctx_train,
            f"{one.architecture}.embedding_length": one.n_embd,
            f"{one.architecture}.vocab_size": one.n_vocab,
        },
        "capabilities": _capabilities(one),
        "modified_at": stamp(models.service.t_created),
    }
    served = one.served
    if served is not None and _generates(served):
        shown |= {"template": served.chat.source, "parameters": _parameters(served)}
    exchange.send(Response(200, _encode(shown)))


def _named(models: ModelTable, request: Request, name: str) -> Described:
    """Return a model by any of its names. Raises ApiError."""
    if not name:
        raise bad('"model" is missing')
    if not isinstance(models, ManyModels):
        (served,) = models
        return _of_served(served, served.name_for(request))
    entry = models.entry(bare_name(name))
    listed = next((one for one in _every(models, request) if one.name == entry.id), None)
    return listed if listed is not None else Described(entry.id, models.known(entry))


def _parameters(served: ServedModel) -> str:
    """Return the server's sampling options as lines of a Modelfile."""
    options = served.defaults.options
    names = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty")
    lines = [f"{name} {getattr(options, name):g}" for name in names]
    return "\n".join([*lines, f"num_ctx {served.described().n_ctx_slot}"])


def _generates(served: ServedModel) -> bool:
    """Return whether the model generates text, and its template is known."""
    try:
        served.described_text()
    except ApiError:
        return False
    return True


def _capabilities(one: Described) -> list[str]:
    """Return what the model can do, as far as that is known without loading it."""
    served = one.served
    sees = ["vision"] if "image" in one.modalities else []
    if served is None or served.host.model is None:
        return ["completion", *sees]
    embeds = ["embedding"] if served.host.embedder is not None else []
    if not _generates(served):
        return embeds
    info, chat = served.host.model.info, served.chat
    return [
        "completion",
        *(["tools"] if chat.has_tools else []),
        *(["thinking"] if chat.format.think or chat.format.calls.thought_tags[1] else []),
        *(["insert"] if min(info.fim_pre, info.fim_suf, info.fim_mid) >= 0 else []),
        *sees,
        *embeds,
    ]
