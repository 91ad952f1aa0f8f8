"""The keys of a model's file that hold sampling defaults (`general.sampling.*`).

Constants only. Engines import this module, so it must not import the table of options.
"""

from __future__ import annotations

from collections.abc import Mapping

SAMPLING_PREFIX = "general.sampling."
SAMPLING_TEXT_MAX = 1024  # every usable value is shorter
# The options by the last part of their keys.
SAMPLING_KEYS: Mapping[str, str] = {
    "sequence": "samplers",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "xtc_probability": "xtc_probability",
    "xtc_threshold": "xtc_threshold",
    "temp": "temperature",
    "penalty_last_n": "repeat_last_n",
    "penalty_repeat": "repeat_penalty",
    "mirostat": "mirostat",
    "mirostat_tau": "mirostat_tau",
    "mirostat_eta": "mirostat_eta",
}
