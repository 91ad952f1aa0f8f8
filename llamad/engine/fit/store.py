"""Stores earlier measurements: in a file for each combination of model, settings, devices and build.

Runs in the thread that loads. If the folder cannot be written, the next start only has to measure again.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

import llamad
from llamad.engine.fit.measure import PLACEMENT, Device, Shape
from llamad.engine.fit.search import Choice
from llamad.engine.fit.usage import Usage
from llamad.engine.loading.gguf_rules import parts_of

if TYPE_CHECKING:
    from llamad.flags.settings import ModelSettings

log = logging.getLogger("llamad.engine")

FILES_MAX = 256
# All settings that change what llama.cpp allocates.
SETTINGS = (
    *PLACEMENT,
    *("n_ctx", "keeps_ctx", "n_batch", "n_ubatch", "n_parallel", "kv_unified", "kv_unified_per_slot"),
    *(
        "cache_type_k",
        "cache_type_v",
        "flash_attn",
        "kv_offload",
        "swa_full",
        "op_offload",
        "repack",
        "no_host",
    ),
    *("split_mode", "main_gpu", "devices", "rpc", "embeddings", "reranking", "pooling", "attention"),
    *("grp_attn_n", "override_kv", "llama_api_only", "mmproj_offload", "mmproj_device", "n_threads"),
    *(
        "n_gpu_layers_draft",
        "devices_draft",
        "cache_type_k_draft",
        "cache_type_v_draft",
        "override_tensor_draft",
    ),
    *("cpu_moe_draft", "n_cpu_moe_draft"),
    *("image_min_tokens", "image_max_tokens", "fit", "fit_target", "fit_ctx", "mmap", "load_mode"),
)


class Last(msgspec.Struct):
    """The last choice."""

    choice: Choice | None = None
    is_roomy: bool = False


class Known(msgspec.Struct):
    """What is known about one model on this machine."""

    usages: dict[str, Usage] = {}  # by the choice as JSON
    # The model's shape, and the names of its devices; None: no model of several was planned yet.
    shape: Shape | None = None
    devices: list[str] = []
    choices: dict[str, Last] = {}  # by the model's share of the memory; "" if the daemon has no other model

    def last(self, share: str) -> Last:
        return self.choices.setdefault(share, Last())


def folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of all estimates: in the cache folder of the service or of the user."""
    own = environ.get("CACHE_DIRECTORY", "").split(":")[0]
    if own:
        return Path(own, "estimates")
    home = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or os.path.expanduser("~"), ".cache")
    return Path(home, "llamad", "estimates")


class Store:
    """Reads what is known about one model; save() writes it."""

    def __init__(self, settings: ModelSettings, devices: list[Device], path: Path | None) -> None:
        self.key = _key(settings, devices)
        self._path = None if path is None else path / f"{self.key}.json"
        self.known = self._read()

    def _read(self) -> Known:
        try:
            data = b"" if self._path is None else self._path.read_bytes()
            return msgspec.json.decode(data, type=Known)
        except (OSError, msgspec.MsgspecError):
            return Known()

    def save(self) -> None:
        if self._path is None:
            return
        temporary = self._path.with_suffix(f".{os.getpid()}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(msgspec.json.encode(self.known))
            temporary.replace(self._path)
            self._prune()
        except OSError as error:
            log.debug("estimates cannot be stored in %s: %s", self._path.parent, error.strerror)
            with suppress(OSError):
                temporary.unlink()

    def _prune(self) -> None:
        assert self._path is not None
        files = sorted(self._path.parent.iterdir(), key=lambda file: file.stat().st_mtime)
        for file in files[:-FILES_MAX]:
            file.unlink()


def _key(settings: ModelSettings, devices: list[Device]) -> str:
    paths = [
        *parts_of(settings.model),
        *filter(None, [settings.mmproj]),
        *(file.path for file in settings.lora),
        *(parts_of(settings.model_draft) if settings.model_draft is not None else ()),
    ]
    files = [(os.path.realpath(path), os.stat(path).st_size, os.stat(path).st_mtime_ns) for path in paths]
    values = {name: getattr(settings, name) for name in SETTINGS}
    machine = [(device.name, device.description, device.total) for device in devices]
    build = Path(llamad.__file__).with_name("_build_info.json")
    info = build.read_bytes() if build.is_file() else b""
    whole = msgspec.json.encode([files, values, machine, llamad.__version__]) + info
    return hashlib.sha256(whole).hexdigest()[:32]
