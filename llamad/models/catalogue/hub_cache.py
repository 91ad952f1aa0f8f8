"""Lists the models in the cache of a hub, as llama-server does: by repository and quantization. Any thread; blocks
while it reads folders."""

from __future__ import annotations

from collections.abc import Mapping

from llamad.models.hub.cache import HubCache, hub_folder
from llamad.models.hub.names import split_name


def read(environ: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the names of the complete models, for --hf-repo, and warnings. A model without a quantization in its
    name is listed by its repository, if that has no other model, so that the name means this file."""
    try:
        names = sorted({model.name for model in HubCache(hub_folder(environ)).models()})
    except OSError as error:
        return [], [f"{error.filename}: {error.strerror}; the models of this folder are not listed"]
    with_quant = {repo for repo, quant in map(split_name, names) if quant}
    return [name for name in names if ":" in name or name not in with_quant], []
