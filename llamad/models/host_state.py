"""The states of a model, as its host shows them. Endpoints look at them and never wait."""

from __future__ import annotations

from enum import Enum


class State(Enum):
    UNLOADED = "unloaded"  # there is no engine, and none is asked for
    SLEEPING = "sleeping"  # the same, but the next request loads the model again
    LOADING = "loading model"
    READY = "ok"
    RESTARTING = "restarting"
    FAILED = "error"
    DRAINING = "draining"
