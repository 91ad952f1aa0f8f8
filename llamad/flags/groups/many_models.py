"""The flags of a daemon that serves many models: where they are listed, and how many may be loaded. Pure data; must not
compute."""

from __future__ import annotations

from llamad.flags.types.declaration import flag, flags_of
from llamad.flags.types.kinds import File, Float, Int


class ManyModels:
    """Settings of a daemon that serves many models."""

    models_dir: str | None = flag(
        kind=File(),
        default=None,
        metavar="FOLDER",
        help="Serve all models of this folder and of the folders below it, each by the name of its file or folder.",
    )
    models_preset: str | None = flag(
        kind=File(),
        default=None,
        help="Serve the models of an INI file: a section for each, with flags as keys; [*] is for all of them.",
    )
    models_max: int = flag(
        kind=Int(low=0),
        default=4,
        help="Maximum number of models that are loaded at the same time; 0: no limit.",
    )
    models_autoload: bool = flag(
        off=("--no-models-autoload",),
        default=True,
        help="Load a model when a request names it; off: only by POST /models/load.",
    )
    models_memory_max: int = flag(
        kind=Int(low=0),
        default=0,
        metavar="MiB",
        help="Memory that all models together may take on each device, or of the RAM if there is no device; 0: no"
        " limit.",
    )
    models_wait_seconds: float = flag(
        kind=Float(low=0.0),
        default=30.0,
        metavar="SECONDS",
        help="When a request has waited this long for its model, a busy model takes no new requests, finishes, and"
        " makes room for it.",
    )
    models_queue_max: int = flag(
        kind=Int(1, 1_000_000),
        default=512,
        help="Maximum requests that wait for one model to be loaded; beyond it: 429.",
    )


FLAGS = flags_of(ManyModels, "Many models")
