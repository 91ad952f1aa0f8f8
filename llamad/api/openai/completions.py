"""POST /v1/completions, OpenAI's older endpoint, and the format of its responses.

Runs on the event loop. job.py runs the request.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from llamad.api.generate import completion_json
from llamad.api.generate.completion_result import piece_timings
from llamad.api.generate.dialect import Dialect
from llamad.api.generate.held_tokens import joined
from llamad.api.generate.job import CompletionPart, Job
from llamad.api.generate.prepare import prepare
from llamad.api.generate.stream_event import TextFrame
from llamad.api.openai import objects
from llamad.api.openai.echo import Echo
from llamad.api.openai.request import TOP_LOGPROBS_MAX, OpenAiRequest, settle
from llamad.api.request import checks, fim_prompt
from llamad.api.request.errors import ApiError, bad
from llamad.api.request.media import sent_prompts
from llamad.api.request.prompt import Built, Prompt, PromptObject, Prompts
from llamad.api.service.body_reading import with_options
from llamad.api.service.served_model import ServedModel
from llamad.client.events import TokenProbs
from llamad.client.text_event import TextEvent
from llamad.flags.settings import ModelSettings
from llamad.http import sse
from llamad.http.exchange import Exchange
from llamad.options.option import LEFT_OUT
from llamad.options.ranges import LastN, Many

_encode = msgspec.json.Encoder().encode


class Progress(msgspec.Struct):
    """How much of one part was sent."""

    offsets: objects.Offsets
    is_echoed: bool = False  # whether the stream has the prompt already


class TextRequest(OpenAiRequest, kw_only=True):
    prompt: Prompts | None = None
    suffix: str = ""
    echo: bool = False
    logprobs: LastN = LEFT_OUT
    best_of: Many = LEFT_OUT

    @property
    def n_top(self) -> int:
        """Return the number of top tokens per generated token; -1: no logprobs. /completion's name for it is
        n_probs."""
        if self.logprobs == LEFT_OUT:
            return self.n_probs or -1
        most = max(self.n_probs, TOP_LOGPROBS_MAX)
        if self.logprobs > most:
            raise checks.out_of_range("logprobs", self.logprobs, -1, most)
        return self.logprobs


class TextDialect(Dialect[Job, CompletionPart]):
    """The dialect of one request: its id, what it echoes, and what it returns with the text."""

    holds = True

    def __init__(self, request: TextRequest, served: ServedModel) -> None:
        self.id = objects.new_id("cmpl-")
        self.created = int(time.time())
        self.model = served.name if request.model is None else request.model
        self.fingerprint = served.service.build_info
        self.echo = request.echo
        self.n_top = request.n_top
        self.usage = request.include_usage
        self.n_wanted = request.n
        self.prompts = Prompts()  # as the client sent them
        self.echoes: dict[int, Echo] = {}  # by the index of the prompt

    @property
    def n_probs(self) -> int:
        return 0 if self.n_top < 0 else max(1, self.n_top)

    def _envelope(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
        }

    @property
    def tells_prompt(self) -> bool:
        """Whether the prompt's tokens are returned with their logprobs."""
        return self.echo and self.n_top >= 0

    def on_prompt(self, part: CompletionPart, tokens: list[int], probs: list[TokenProbs]) -> None:
        self._echo(part).take(tokens, probs)

    def _echo(self, part: CompletionPart) -> Echo:
        job, i = part.job, part.index // part.job.generation.n
        if i not in self.echoes:
            assert job.ready is not None
            self.echoes[i] = Echo(
                self.prompts[i], part.tokens_prompt, job.ready.system, job.model, self.n_top
            )
        return self.echoes[i]

    def _progress(self, part: CompletionPart) -> Progress:
        if not isinstance(part.state, Progress):
            part.state = Progress(objects.Offsets(len(self._echo(part).text) if self.echo else 0))
        return part.state

    def _logprobs(self, part: CompletionPart, piece: TextEvent) -> dict[str, Any] | None:
        if self.n_top < 0:
            return None
        job, logprobs, offsets = part.job, objects.no_text_logprobs(), self._progress(part).offsets
        is_post = job.generation.post_sampling_probs
        objects.text_logprobs(
            logprobs, offsets, job.model.vocab.output, piece.tokens, piece.probs, self.n_top, is_post
        )
        # The generated tokens in llama-server's format, which is that of chats. They are encoded immediately, like the
        # top tokens.
        newer = objects.chat_logprobs(job.model.vocab, piece, self.n_top, is_post)
        return {**logprobs, "content": [msgspec.Raw(_encode(one)) for one in newer]}

    def _echo_event(self, part: CompletionPart) -> bytes:
        """Return the event with the prompt, which comes before the first text of a part. By then the engine has sent
        all of its tokens."""
        if not self.echo or self._progress(part).is_echoed:
            return b""
        self._progress(part).is_echoed = True
        echo = self._echo(part)
        choice = self._choice(part, echo.text, echo.logprobs if self.tells_prompt else None, None)
        return objects.event(part.job, self._envelope([choice]))

    def _choice(
        self, part: CompletionPart, text: str, logprobs: dict[str, Any] | None, reason: str | None
    ) -> dict[str, Any]:
        return {"text": text, "index": part.index, "logprobs": logprobs, "finish_reason": reason}

    @staticmethod
    def _tokens(part: CompletionPart, pieces: list[TextEvent]) -> dict[str, Any]:
        if not part.job.generation.return_tokens:
            return {}
        return {"tokens": [token for piece in pieces for token in piece.tokens]}

    # Called by the job.

    def frame(self, part: CompletionPart) -> TextFrame | None:
        g = part.job.generation
        if self.echo or self.n_top >= 0 or g.return_tokens or g.timings_per_token or g.response_fields:
            return None
        opening = _encode(self._envelope([]))[:-2]
        after = b',"index":%d,"logprobs":null,"finish_reason":null}]}' % part.index
        return TextFrame(opening + b'{"text":', after)

    def piece(self, part: CompletionPart, piece: TextEvent) -> bytes:
        text = piece.data.decode("utf-8", "replace")
        choice = self._choice(part, text, self._logprobs(part, piece), None)
        event = self._envelope([choice | self._tokens(part, [piece])]) | piece_timings(part, piece)
        return self._echo_event(part) + objects.event(part.job, event)

    def progress(self, part: CompletionPart, fields: dict[str, Any]) -> bytes:
        event = self._envelope([self._choice(part, "", None, None)]) | fields
        return objects.event(part.job, event)

    def done(self, part: CompletionPart) -> bytes:
        logprobs = self._logprobs(part, joined(part.held)) if part.held else None
        choice = self._choice(part, "", logprobs, objects.finish_reason(part))
        last = self._envelope([choice | (self._tokens(part, part.held) if part.held else {})])
        return self._echo_event(part) + objects.event(part.job, last | objects.ending(part))

    def end(self, job: Job) -> bytes:
        if not self.usage:
            return sse.DONE
        return objects.event(job, self._envelope([]) | objects.usage_ending(job)) + sse.DONE

    def whole(self, job: Job) -> bytes:
        g = job.generation
        parts = [
            part
            for i in range(0, len(job.parts), g.n)
            for part in _best(job.parts[i : i + g.n], self.n_wanted)
        ]
        choices = []
        for index, part in enumerate(parts):
            text = part.data().decode("utf-8", "replace")
            if self.echo:
                text = self._echo(part).text + text
            tokens = [token for piece in part.pieces for token in piece.tokens]
            probs = [one for piece in part.pieces for one in piece.probs]
            logprobs = self._logprobs(part, TextEvent(tokens, b"", 0, 0, 0, 0, probs))
            if logprobs is not None and self.echo:
                prompt = self._echo(part).logprobs
                logprobs = {name: prompt.get(name, []) + values for name, values in logprobs.items()}
            choice = self._choice(part, text, logprobs, objects.finish_reason(part))
            choices.append(choice | self._tokens(part, part.pieces) | {"index": index})
        whole = self._envelope(choices) | {"usage": objects.usage(job)} | objects.ending(parts[0])
        return _encode(completion_json.select(whole, g.response_fields))


def _best(parts: list[CompletionPart], n: int) -> list[CompletionPart]:
    """Return the `n` completions with the highest mean logprob."""
    if n == len(parts):
        return parts

    def mean(part: CompletionPart) -> float:
        values = [own for piece in part.pieces for own, _ in piece.probs]
        return sum(values) / len(values) if values else -float("inf")

    return sorted(parts, key=mean, reverse=True)[:n]


def handle(served: ServedModel, exchange: Exchange) -> None:
    """POST /v1/completions."""
    with_options(served, exchange, TextRequest, partial(_start, served, exchange))


def _start(served: ServedModel, exchange: Exchange, request: TextRequest) -> None:
    model, engine = served.ready()
    dialect = TextDialect(request, served)
    refused = fim_prompt.refusal(model.info) if request.suffix else None
    if refused is not None:
        raise ApiError(refused.status, f'"suffix": {refused.message}')
    n_probs = _take_best_of(request, dialect.n_probs, served.settings)
    constraint = settle(request, served, n_probs)
    on_prompt = dialect.on_prompt if dialect.tells_prompt else None
    if on_prompt is not None and (request.suffix or request.post_sampling_probs):
        other = "suffix" if request.suffix else "post_sampling_probs"
        raise bad(f'"echo" with "logprobs" cannot be combined with "{other}"')
    job = Job(served, exchange, request, constraint, model, engine, dialect, on_prompt=on_prompt)
    if request.prompt is None:
        raise bad('"prompt" is missing')
    sent = request.prompt
    request.prompt = None  # freed, because the options live longer
    if request.echo:
        dialect.prompts = sent
    else:
        job.memory.keep_only(sys.getsizeof(request.suffix))
    if request.echo and any(isinstance(one, PromptObject) for one in sent):
        raise bad('"echo" cannot be combined with images or sound in the prompt')
    built: Sequence[Prompt | Built] = (
        _around_gap(sent, request, served.settings)
        if request.suffix
        else sent_prompts(sent, [], reads_media=served.media is not None)
    )
    prepare(served, exchange, request, constraint, model, built, job.submit)


def _take_best_of(request: TextRequest, n_probs: int, settings: ModelSettings) -> int:
    """Let the request generate `best_of` completions, of which `n` are returned. Return the n_probs that is needed to
    rank them."""
    best_of = request.n if request.best_of == LEFT_OUT else request.best_of
    if best_of < request.n:
        raise bad(f'"best_of" must be at least "n", which is {request.n}')
    if best_of == request.n:
        return n_probs
    if request.stream:
        raise bad('"best_of" cannot be combined with "stream": all candidates are ranked first')
    if best_of > settings.n_max:
        raise checks.over_cap("best_of", settings.n_max, "--n-max")
    request.n = best_of
    return max(1, n_probs)


def _around_gap(sent: Prompts, request: TextRequest, settings: ModelSettings) -> list[fim_prompt.Infill]:
    """Return infilling prompts that have the prompts as their prefixes."""
    infills = []
    for one in sent:
        if not isinstance(one, str):
            raise bad('"suffix" needs a "prompt" that is a string, or an array of strings')
        infills.append(fim_prompt.Infill(settings, one, request.suffix, [], "", request.n_predict))
    return infills
