"""POST /v1/load_lora_adapter and /v1/unload_lora_adapter, as in vLLM: load adapters by name while the server runs.

Runs on the event loop; the engine checks and opens the file. Off unless --lora-load-path names a folder.
"""

from __future__ import annotations

from msgspec import Struct

from llamad.api.request.body import Body
from llamad.api.request.errors import ApiError, bad
from llamad.api.service.served_model import ServedModel
from llamad.client.adapters import UnknownAdapter
from llamad.flags.types.model_files import is_adapter_name
from llamad.http.exchange import Exchange
from llamad.http.request import Response
from llamad.models.adapter_loading import AdapterLoading, NoFile
from llamad.protocol.errors import EngineEnded, FileRefused


class LoadRequest(Struct):
    lora_name: str = ""
    lora_path: str = ""
    load_inplace: bool = False


class UnloadRequest(Struct):
    lora_name: str = ""
    lora_int_id: int | None = None


_LOAD, _UNLOAD = Body(LoadRequest), Body(UnloadRequest)


def load(served: ServedModel, exchange: Exchange) -> None:
    """POST /v1/load_lora_adapter."""
    loading = _loading(served)
    sent = _LOAD.decode(exchange.request.body)
    if not sent.lora_path:
        raise bad('"lora_path" is missing: the name of a file in the folder of --lora-load-path')
    if not is_adapter_name(sent.lora_name):
        raise bad(
            '"lora_name" must be 1 to 128 letters, digits, ".", "_" and "-", the first a letter or a digit'
        )
    if sent.lora_name in served.names:
        raise bad(f'"lora_name": {sent.lora_name} is the name of the model itself; choose another')
    served.service.spawn(exchange, _load(served, exchange, loading, sent))


async def _load(served: ServedModel, exchange: Exchange, loading: AdapterLoading, sent: LoadRequest) -> None:
    try:
        await loading.load(sent.lora_name, sent.lora_path, sent.load_inplace)
    except FileRefused as error:
        raise bad(str(error)) from None
    except NoFile as error:
        raise ApiError(404, str(error)) from None
    except EngineEnded:
        raise served.not_ready() from None
    _answer(exchange, sent.lora_name, "added")


def unload(served: ServedModel, exchange: Exchange) -> None:
    """POST /v1/unload_lora_adapter. Requests that use the adapter go on; new ones do not find it."""
    loading = _loading(served)
    sent = _UNLOAD.decode(exchange.request.body)
    if not sent.lora_name:
        raise bad('"lora_name" is missing')
    try:
        loading.unload(sent.lora_name, sent.lora_int_id)
    except UnknownAdapter:
        raise ApiError(404, f"there is no adapter {sent.lora_name}; GET /lora-adapters lists them") from None
    except FileRefused as error:
        raise bad(str(error)) from None
    _answer(exchange, sent.lora_name, "removed")


def _loading(served: ServedModel) -> AdapterLoading:
    served.described()
    loading = served.host.loading
    if not loading.is_on:
        raise ApiError(
            501, "This server does not load adapters at run time. Start it with `--lora-load-path FOLDER`"
        )
    return loading


def _answer(exchange: Exchange, name: str, done: str) -> None:
    text = f"Success: LoRA adapter '{name}' {done} successfully."
    exchange.send(Response(200, text.encode(), "text/plain; charset=utf-8"))
