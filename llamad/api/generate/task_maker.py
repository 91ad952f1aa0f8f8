"""Makes the engine's tasks of a job, one for each completion of each prompt. Runs on the event loop."""

from __future__ import annotations

from collections.abc import Sequence

from llamad.api.generate.prepare import PreparedPrompts
from llamad.api.request import generation as options
from llamad.api.request.cache_hints import ONCE, UNKNOWN
from llamad.api.request.parse import GenerationRequest
from llamad.api.service.adapters import adapter_set
from llamad.api.service.served_model import ServedModel
from llamad.client.adapters import Use
from llamad.client.engine_client import EngineClient
from llamad.client.task import RequestContext, Task
from llamad.http.request import Request
from llamad.protocol.model_info import Model
from llamad.protocol.row_ids import without_rows


def retention_s(generation: GenerationRequest) -> int:
    """Return for how many seconds the client means to use its prompt again, as RequestContext has it."""
    if not generation.cache_prompt:
        return ONCE
    return generation.cache_hint.seconds if generation.cache_hint is not None else UNKNOWN


class TaskMaker:
    """Makes what the tasks of a request share only once. The job sets the attributes that depend on its response."""

    def __init__(
        self,
        served: ServedModel,
        request: Request,
        client: int,
        generation: GenerationRequest,
        model: Model,
        ready: PreparedPrompts,
        uses: Sequence[Use],
        t_submit_us: int,
    ) -> None:
        self._generation = g = generation
        self._model = model
        self._ready = ready
        self._settings = served.settings
        self._group = 0
        self._context = RequestContext(
            request.request_id,
            request.key_name,
            client,
            served.owner(request),
            served.service.session(request),
            deadline_us=served.deadline_us(request),
            retention_s=retention_s(generation),
        )
        self._samplings = [options.sampling(g, model.info, options.seed_of(g, i)) for i in range(g.n)]
        self._stops = [stop.encode("utf-8", "replace") for stop in g.stop]
        self._sets = [adapter_set(served.host.adapters, uses, tokens) for tokens in ready.tokens]
        self.bias = options.biases(g, served.eog_tokens(), model.suppressed_tokens)
        self.answer_bytes_max = 0  # of each task; 0: no limit
        self.is_streamed = False  # whether there is an event per token
        self.has_markers = False
        self.has_prompt_probs = False
        self.has_progress = False

    def make(self, index: int, engine: EngineClient) -> Task:
        """Return the task of one completion. Tasks must be made in order, because those of one prompt form a group."""
        ready, g = self._ready, self._generation
        i_prompt, i_completion = divmod(index, g.n)
        if g.n > 1 and i_completion == 0:
            self._group = engine.new_group()
        return Task(
            self._context,
            ready.tokens[i_prompt],
            self._samplings[i_completion],
            g,
            vocab=self._model.vocab,
            stops=self._stops,
            bias=self.bias,
            breakers=ready.breakers,
            n_keep=ready.system.kept(g.n_keep, self._model.info.add_bos),
            stream=self.is_streamed,
            context_shift=self._settings.context_shift,
            grammar=ready.constraint.grammar if ready.constraint is not None else None,
            group=self._group,
            markers=self.has_markers,
            answer_bytes_max=self.answer_bytes_max,
            penalty=self._penalty(i_prompt),
            # The other n - 1 completions have the same prompt.
            prompt_probs=self.has_prompt_probs and i_completion == 0,
            progress=self.has_progress,
            adapters=self._sets[i_prompt],
            rows=ready.rows[i_prompt] if ready.rows else None,
        )

    def _penalty(self, i_prompt: int) -> bytes | None:
        """Return the tokens that the penalties apply to: those that the request gives, or the text of the prompt."""
        if self._generation.penalty_prompt is not None:
            return bytes(self._generation.penalty_prompt)
        has_rows = self._ready.rows and self._ready.rows[i_prompt]
        return without_rows(self._ready.tokens[i_prompt]) if has_rows else None
