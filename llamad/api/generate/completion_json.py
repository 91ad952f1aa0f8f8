"""Parts of the JSON of a completion: timings, progress, usage, tokens, `response_fields`.

Pure functions on the event loop. Must not know how the response is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llamad.client.events import Done
from llamad.tokenizer.vocab import Vocab


def timings(
    n_prompt: int,
    n_cached: int,
    prompt_us: int,
    n_decoded: int,
    predict_us: int,
    n_drafted: int,
    n_accepted: int,
) -> dict[str, Any]:
    """Return `timings`, in milliseconds; prompt_n counts the tokens that were prefilled, cache_n those that were
    reused. The first token comes from the last step of the prefill, so the speed is over the steps after it. Drafts are
    shown if there were any, as in llama-server."""
    n_read, n_after = n_prompt - n_cached, max(0, n_decoded - 1)
    prompt_ms, predicted_ms = prompt_us / 1e3, predict_us / 1e3
    return {
        "cache_n": n_cached,
        "prompt_n": n_read,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": prompt_ms / n_read if n_read else 0.0,
        "prompt_per_second": n_read * 1e6 / prompt_us if prompt_us else 0.0,
        "predicted_n": n_decoded,
        "predicted_ms": predicted_ms,
        "predicted_per_token_ms": predicted_ms / n_after if n_after else 0.0,
        "predicted_per_second": n_after * 1e6 / predict_us if predict_us else 0.0,
        **({"draft_n": n_drafted, "draft_n_accepted": n_accepted} if n_drafted else {}),
    }


def ended_timings(done: Done, miss: dict[str, Any]) -> dict[str, Any]:
    """Return the `timings` of a completion that has ended; `miss` is its `cache_miss`, if it has one."""
    ended = timings(
        done.n_prompt,
        done.n_cached,
        done.prompt_us,
        done.n_decoded,
        done.predict_us,
        done.n_drafted,
        done.n_accepted,
    )
    return ended | {"cache_miss": miss} if miss else ended


def progress(n_prompt: int, n_cached: int, n_processed: int, prompt_us: int) -> dict[str, Any]:
    """Return `prompt_progress`."""
    return {"total": n_prompt, "cache": n_cached, "processed": n_processed, "time_ms": prompt_us // 1000}


def usage(dones: Sequence[Done], n: int = 1) -> dict[str, Any]:
    """Return the usage of all completions together; the prompt of `n` of them counts once."""
    n_prompt = sum(done.n_prompt for done in dones[::n])
    n_completion = sum(done.n_decoded for done in dones)
    return {
        "prompt_tokens": n_prompt,
        "completion_tokens": n_completion,
        "total_tokens": n_prompt + n_completion,
        "prompt_tokens_details": {"cached_tokens": sum(done.n_cached for done in dones[::n])},
        **_prediction(dones),
    }


def _prediction(dones: Sequence[Done]) -> dict[str, Any]:
    """Return how many drafted tokens were right and wrong, under OpenAI's names, if any were drafted."""
    n_drafted, n_accepted = sum(done.n_drafted for done in dones), sum(done.n_accepted for done in dones)
    if n_drafted == 0:
        return {}
    details = {"accepted_prediction_tokens": n_accepted, "rejected_prediction_tokens": n_drafted - n_accepted}
    return {"completion_tokens_details": details}


def token_json(vocab: Vocab, token: int, name: str, value: float) -> dict[str, Any]:
    """Return a token with its probability, which has this name, in the format of /completion and of chats."""
    data = vocab.output(token)
    return {"id": token, "token": data.decode("utf-8", "replace"), "bytes": list(data), name: value}


def select(result: dict[str, Any], response_fields: Sequence[str]) -> dict[str, Any]:
    """Return only the named fields; "a/b" is the field b of a, under the name "a/b". Fields that do not exist are left
    out."""
    if not response_fields:
        return result
    out: dict[str, Any] = {}
    for path in response_fields:
        value: Any = result
        for name in path.split("/"):
            if not isinstance(value, dict) or name not in value:
                break
            value = value[name]
        else:
            out[path] = value
    return out
