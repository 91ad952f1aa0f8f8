"""Owns the way from OpenAI's request bodies to the options of a generation.

Pure functions on the event loop. Every 400 about OpenAI's own fields is born here.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from llamad.api.request import constraints, fields
from llamad.api.request.errors import bad
from llamad.api.request.parse import GenerationRequest
from llamad.api.service.service import Service
from llamad.options.table import Options

TOP_LOGPROBS_MAX = 20


def include_usage(body: dict[str, Any]) -> bool:
    """`stream_options.include_usage`."""
    value = body.get("stream_options")
    if value is None:
        return False
    if not isinstance(value, dict):
        raise bad('"stream_options" must be an object')
    return fields.flag(value, "include_usage", False)


def limit(body: dict[str, Any], service: Service) -> dict[str, Any]:
    """The token limit under the name that the options know. Without one a text ends with its context, unshifted."""
    wanted, cap = service.defaults.options.n_predict, service.settings.n_predict_max or None
    for name in ("max_completion_tokens", "max_tokens", "n_predict"):
        if body.get(name) is not None:
            wanted = fields.capped(body, name, -2, cap, "--n-predict-max")
            break
    return {"n_predict": -2 if wanted < 0 else wanted}


def response_format(body: dict[str, Any]) -> constraints.Wanted | None:
    """What `response_format` wants, in every form of it; None when it says nothing."""
    value = body.get("response_format")
    if value is None or value == "auto":
        return None
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise bad('"response_format" must be an object with a "type"')
    kind, strict = value["type"], fields.flag(body, "strict", True)
    if kind in ("text", "auto"):
        return None
    if kind == "json_object":
        schema = value.get("schema")
        return constraints.wanted_schema({"type": "object"} if schema is None else _schema(schema), strict)
    if kind != "json_schema":
        raise bad(f'"response_format": unknown type "{kind[:64]}"; use text, json_object or json_schema')
    schema = value.get("schema")
    if schema is None:
        schema = value.get("json_schema")
        if isinstance(schema, dict) and schema.get("schema") is not None:
            # OpenAI's own form: its "strict" says how the model is to be held, and holding it is all we do.
            if schema.get("strict") is False:
                strict = False
            schema = schema["schema"]
    if schema is None:
        raise bad('"response_format": "json_schema" is missing')
    return constraints.wanted_schema(_schema(schema), strict)


def _schema(value: object) -> Any:
    if not isinstance(value, dict | bool):
        raise bad('"response_format": the schema must be an object')
    return value


def parse(
    body: dict[str, Any],
    service: Service,
    n_probs: int,
    forced: constraints.Wanted | None = None,
    before: str = "",
) -> tuple[Options, constraints.Wanted]:
    """Every option of /completion, with OpenAI's names for the limit and the form. `before` is what a chat's model
    writes before an answer that a schema forms."""
    own = {"prompt", "response_format", "logprobs", "top_logprobs", "max_tokens", "max_completion_tokens"}
    known = {name: value for name, value in body.items() if name not in own}
    known |= limit(body, service)
    fields.text(body, "user")  # nothing here depends on who asks
    if n_probs > service.settings.n_probs_max:
        most = service.settings.n_probs_max
        raise bad(f'"logprobs" may be at most {most} on this server (--n-probs-max)')
    known["n_probs"] = max(n_probs, fields.whole(body, "n_probs", 0, 0))
    wanted = response_format(body)
    if forced is not None and wanted is not None:
        raise bad('"response_format" cannot be combined with a "tool_choice" that forces a call')
    wanted = forced or wanted
    has_own = bool(known.get("grammar")) or known.get("json_schema") is not None
    if wanted is not None and has_own:
        raise bad(
            '"grammar" and "json_schema" cannot be combined with "response_format" or a forced tool call'
        )
    found = service.defaults.read(GenerationRequest, known)
    constraint = constraints.parse(found, wanted or service.constraint)
    if before and constraint.schema is not None:
        constraint = dataclasses.replace(constraint, before=before)
    return found, constraint


def check_unsupported(body: dict[str, Any]) -> None:
    """What no model here can do."""
    if body.get("audio") is not None:
        raise bad('"audio" is not supported: this server generates text only')
    modalities = body.get("modalities")
    if modalities is not None and modalities != ["text"]:
        raise bad('"modalities" must be ["text"]: this server generates text only')
