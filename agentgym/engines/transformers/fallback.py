"""Batched `generate()` for models the slot engine cannot serve.

transformers runs the model; what is sampled is still ours: a logits processor draws every token
with the request's own settings and random numbers, and a stopping criterion lets requests leave and
commands through between two tokens. So the contract is that of the slot engine, only slower: a turn
waits for the batch before it, and every prompt is computed anew.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from transformers import GenerationConfig

from agentgym.engines.local import EngineStats
from agentgym.engines.transformers.model import PolicyModel
from agentgym.engines.transformers.requests import Ids, Request
from agentgym.engines.transformers.sampler import sample


class GenerateCore:
    """Requests in, outcomes out; all on the worker's thread."""

    def __init__(self, model: PolicyModel, *, max_rows: int) -> None:
        self.policy_version = 0
        self.stats = EngineStats()
        self.poll: Callable[[], bool] = lambda: True
        """Runs commands that wait; False = give up. Set by the engine."""
        self._model = model
        self._max_rows = max_rows
        self._waiting: deque[Request] = deque()
        self._batch: list[Request | None] = []
        """[B] `None` once a request has left."""
        self._finished: list[Request] = []
        """Of the batch under way."""

    @property
    def is_busy(self) -> bool:
        return self.is_running or bool(self._waiting)

    @property
    def is_running(self) -> bool:
        return any(self._batch)

    def submit(self, request: Request) -> None:
        """Sample this turn in the next batch."""
        self._waiting.append(request)

    def cancel(self, request: Request) -> None:
        """Let the request leave its batch."""
        if request in self._waiting:
            self._waiting.remove(request)
        self._batch = [None if member is request else member for member in self._batch]

    def release(self, session: str) -> None:
        """Nothing is kept between turns."""

    def restart(self) -> int:
        """The weights have changed: what is half sampled is void."""
        self.policy_version += 1
        interrupted = self._leave_all()
        for request in interrupted:
            request.restart()
        self._waiting.extendleft(reversed(interrupted))
        return self.policy_version

    def abandon(self) -> list[Request]:
        """Hand back every request."""
        requests = [*self._finished, *self._leave_all(), *self._waiting]
        self._finished = []
        self._waiting.clear()
        return requests

    def rest(self) -> None:
        """Give the model back as it was."""
        self._model.let_go()

    @torch.no_grad()
    def step(self) -> list[Request]:
        """Sample one batch of turns."""
        started = time.perf_counter()
        self._model.hold(explicit_masks=False)
        self._batch = list(self._next_batch())
        if self._batch:
            self._generate()
        self._waiting.extendleft(reversed(self._leave_all()))
        self.stats.seconds += time.perf_counter() - started
        finished, self._finished = self._finished, []
        return finished

    def _next_batch(self) -> list[Request]:
        """The first that wait; of one prompt length only if padding would enter the state."""
        waiting = list(self._waiting)
        if self._model.base._is_stateful:
            waiting = [r for r in waiting if len(r.prompt) == len(waiting[0].prompt)]
        batch = waiting[: self._max_rows]
        for request in batch:
            self._waiting.remove(request)
        return batch

    def _generate(self) -> None:
        batch = [request for request in self._batch if request is not None]
        ids, attention = _left_padded([request.prompt for request in batch])
        self.stats.prefill_calls += 1
        self.stats.prefilled_tokens += sum(len(request.prompt) for request in batch)
        with self._plain_configuration(max(request.limit for request in batch)):
            self._model.outer.generate(
                input_ids=ids.to(self._model.device),
                attention_mask=attention.to(self._model.device),
                logits_processor=[self._sample],
                stopping_criteria=[self._stop],
            )

    def _sample(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """A logits processor that leaves one token possible: the one we drew."""
        lines = [line for line, request in enumerate(self._batch) if request is not None]
        requests = [request for request in self._batch if request is not None]
        if not requests:
            return scores
        tokens, logprobs = sample(scores[lines], requests)
        self.stats.decode_steps += 1
        self.stats.sampled_tokens += len(tokens)
        for line, request, token, logprob in zip(lines, requests, tokens, logprobs, strict=True):
            request.accept(token, logprob, self.policy_version)
            if request.outcome is not None:
                self._leave(line, request)
        drawn = torch.full_like(scores, -torch.inf)
        drawn[lines, tokens] = 0.0
        return drawn

    def _leave(self, line: int, request: Request) -> None:
        self._batch[line] = None
        self._finished.append(request)
        self.stats.requests += 1

    def _stop(self, input_ids: Tensor, scores: object) -> Tensor:
        """A stopping criterion: [B] True where the request has left."""
        keep_on = self.poll()
        left = [request is None or not keep_on for request in self._batch]
        return torch.tensor(left, device=input_ids.device)

    def _leave_all(self) -> list[Request]:
        requests = [request for request in self._batch if request is not None]
        self._batch = [None] * len(self._batch)
        return requests

    @contextmanager
    def _plain_configuration(self, max_new_tokens: int) -> Iterator[None]:
        """Keep the model's own defaults (penalties, forced tokens) out of the distribution."""
        plain = GenerationConfig(  # type: ignore[no-untyped-call]
            max_new_tokens=max_new_tokens, do_sample=False, pad_token_id=0
        )
        owners = {id(m): m for m in (self._model.base, self._model.outer)}.values()
        kept = [(owner, owner.generation_config) for owner in owners]
        for owner in owners:
            owner.generation_config = plain
        try:
            yield
        finally:
            for owner, configuration in kept:
                owner.generation_config = configuration


def _left_padded(prompts: list[Ids]) -> tuple[Tensor, Tensor]:
    """[B, T] ids and attention mask, the prompts at the right."""
    width = max(map(len, prompts))
    ids = torch.zeros(len(prompts), width, dtype=torch.long)
    attention = torch.zeros_like(ids)
    for line, prompt in enumerate(prompts):
        ids[line, width - len(prompt) :] = torch.from_numpy(prompt)
        attention[line, width - len(prompt) :] = 1
    return ids, attention
