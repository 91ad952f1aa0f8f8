"""The typed result of parsing: the settings of the daemon and of a model, from all groups, and a few that follow from
several flags.

Built once by `parse`, then read-only on any thread. Must not have defaults, which are in the groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from llamad.flags.groups.adapters import Adapters
from llamad.flags.groups.cache_disk import CacheDisk
from llamad.flags.groups.chat import Chat
from llamad.flags.groups.context import Context
from llamad.flags.groups.cpu import Cpu
from llamad.flags.groups.draft_model import DraftModel
from llamad.flags.groups.embedding import Embedding
from llamad.flags.groups.general import General
from llamad.flags.groups.gpu import Gpu
from llamad.flags.groups.grammar import Grammar
from llamad.flags.groups.hub import Hub
from llamad.flags.groups.limits import HttpLimits, RequestLimits
from llamad.flags.groups.logs import Logs
from llamad.flags.groups.many_models import ManyModels
from llamad.flags.groups.model import Loading
from llamad.flags.groups.multimodal import Multimodal
from llamad.flags.groups.rope import Rope
from llamad.flags.groups.sampling import Sampling
from llamad.flags.groups.server import Server
from llamad.flags.groups.slots import Slots
from llamad.flags.groups.speculative import Speculation
from llamad.options.table import WITH_FLAG, Options


class StructOfGroups(msgspec.StructMeta):
    """Makes a struct of the fields of all groups. The groups are not structs, because msgspec allows only one as a
    base."""

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> StructOfGroups:
        fields = [field for base in bases for field in vars(base).get("__annotations__", ())]
        namespace["__annotations__"] = dict.fromkeys(fields, Any) | namespace.get("__annotations__", {})
        return super().__new__(mcs, name, bases, namespace, **options)


class DaemonSettings(
    General,
    ManyModels,
    CacheDisk,
    Server,
    HttpLimits,
    Logs,
    msgspec.Struct,
    metaclass=StructOfGroups,
    frozen=True,
    kw_only=True,
):
    """The settings of the daemon: where it listens, which models it lists, keys, limits of connections, logs,
    the prompt cache on disk. `None`
    means "none"."""


class ModelSettings(
    Loading,
    Hub,
    Context,
    Slots,
    Speculation,
    DraftModel,
    RequestLimits,
    Sampling,
    Grammar,
    Chat,
    Cpu,
    Gpu,
    Rope,
    Embedding,
    Adapters,
    Multimodal,
    msgspec.Struct,
    metaclass=StructOfGroups,
    frozen=True,
    kw_only=True,
):
    """The settings of a model, which its engine gets, too. `None` means "from the model" or "none" unless a comment
    says otherwise."""

    options: Options  # defaults of a request
    given: frozenset[str]  # the options that a flag or a variable set; a model's file may set the others
    keeps_ctx: bool  # -c was given or follows from another flag, so --fit does not change it
    # The token embedding table is on the device; None: if it has memory to spare.
    inputs_on_device: bool | None
    wants_states: bool  # an endpoint can request a slot's state, or prompts are kept on disk

    @property
    def alias(self) -> str | None:
        """The model's name, or None if its name is its path."""
        return self.aliases[0] if self.aliases else self.hf_repo

    @property
    def is_remote(self) -> bool:
        """Whether a file of the model must be taken from the cache or downloaded."""
        files = self.hf_repo, self.model_url, self.mmproj_url, self.hf_repo_draft
        return any(one is not None for one in files)

    @property
    def wants_drafts(self) -> bool:
        """Whether the next tokens are drafted."""
        return self.spec != "off" or bool(self.spec_types)

    @property
    def wants_vectors(self) -> bool:
        """Whether any endpoint computes embeddings or scores."""
        return self.embeddings or self.reranking


class Settings(msgspec.Struct, frozen=True):
    """Every setting of a command line."""

    daemon: DaemonSettings
    model: ModelSettings

    def get(self, dest: str) -> Any:
        """Return the value that a flag with this `dest` sets."""
        if dest in DaemonSettings.__struct_fields__:
            return getattr(self.daemon, dest)
        return getattr(self.model.options if dest in WITH_FLAG else self.model, dest)

    def replaced(self, changes: Mapping[str, Any]) -> Settings:
        """Return the settings with other values of some fields."""
        daemon, model = divided(changes)
        return Settings(
            msgspec.structs.replace(self.daemon, **daemon), msgspec.structs.replace(self.model, **model)
        )


def divided(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values of the daemon's fields, and the others."""
    fields = frozenset(DaemonSettings.__struct_fields__)
    daemon = {name: value for name, value in values.items() if name in fields}
    return daemon, {name: value for name, value in values.items() if name not in daemon}
