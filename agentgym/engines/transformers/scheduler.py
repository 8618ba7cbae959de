"""Continuous sampling: turns join and leave at every decoding step.

A prefill stores all of a prompt but its last token; that one goes through the next decoding step
like any sampled token. So a turn whose prompt is stored already (a member of a group whose prompt
another member has brought) joins without a forward call of its own.
"""

import time
from collections import deque

import torch

from agentgym.engines.local import EngineStats
from agentgym.engines.transformers.feed import Feed
from agentgym.engines.transformers.requests import Request
from agentgym.engines.transformers.sampler import sample
from agentgym.engines.transformers.slots import Slots
from agentgym.errors import EngineError

_WORTH_WAITING = 8
"""A turn waits for a prefill under way if that spares it this many tokens."""


class SlotCore:
    """Requests in, outcomes out; all on the worker's thread."""

    def __init__(self, slots: Slots) -> None:
        self.policy_version = 0
        self._slots = slots
        self._waiting: deque[Request] = deque()

    @property
    def stats(self) -> EngineStats:
        return self._slots.stats

    @property
    def is_busy(self) -> bool:
        return self.is_running or bool(self._waiting)

    @property
    def is_running(self) -> bool:
        return bool(self._slots.rows.running)

    def submit(self, request: Request) -> None:
        """Sample this turn as soon as a row is free."""
        self._waiting.append(request)

    def cancel(self, request: Request) -> None:
        """Free what the request holds; what is stored stays, as a prefix."""
        if request in self._waiting:
            self._waiting.remove(request)
        for index in self._slots.rows.running:
            if self._slots.rows[index].request is request:
                self._slots.rows.settle(index)

    def release(self, session: str) -> None:
        """The session will not come back."""
        self._slots.rows.release(session)

    def restart(self) -> int:
        """The weights have changed: what is stored or half sampled is void."""
        self.policy_version += 1
        interrupted = self._slots.rows.requests
        for request in interrupted:
            request.restart()
        self._waiting.extendleft(reversed(interrupted))
        self._slots.rows.clear()
        return self.policy_version

    def abandon(self) -> list[Request]:
        """Hand back every request and free the memory."""
        requests = [*self._slots.rows.requests, *self._waiting]
        self._waiting.clear()
        self._slots.clear()
        return requests

    def rest(self) -> None:
        """Give the model back as it was."""
        self._slots.model.let_go()

    @torch.no_grad()
    def step(self) -> list[Request]:
        """Let turns join, then sample one token of every running turn."""
        started = time.perf_counter()
        self._slots.model.hold()
        while joined := self._place_waiting():
            self._slots.prefill(joined)
        finished = self._decode()
        self.stats.seconds += time.perf_counter() - started
        return finished

    def _place_waiting(self) -> list[int]:
        """Give rows to requests, in order, except to those that a prefill under way will help."""
        joined: list[int] = []
        deferred: list[Request] = []
        while self._waiting:
            request = self._waiting.popleft()
            prefix = self._slots.rows.find_prefix(request.prompt)
            if prefix.planned - prefix.length >= _WORTH_WAITING:
                deferred.append(request)
                continue
            index = self._slots.place(request, prefix)
            if index is None:
                deferred.append(request)
                break
            joined.append(index)
        self._waiting.extendleft(reversed(deferred))
        return joined

    def _decode(self) -> list[Request]:
        slots, running = self._slots, self._slots.compact()
        if not running:
            return []
        slots.grow(1 + max(map(slots.rows.position, running)))
        lines = running[-1] + 1
        feed = Feed.empty(lines, 1, slots.cache.padding_slot)
        for index in running:
            slots.feed(index, feed, line=index)
        logits = feed.run(slots.model, slots.cache, slice(lines))
        if len(running) < lines:
            logits = logits[torch.tensor(running, device=logits.device)]
        tokens, logprobs = sample(logits, slots.rows.requests)
        self.stats.decode_steps += 1
        self.stats.sampled_tokens += len(tokens)
        return self._take_in(tokens, logprobs)

    def _take_in(self, tokens: list[int], logprobs: list[float]) -> list[Request]:
        """Hand each running request its token; returns those whose turn is over."""
        finished = []
        rows = self._slots.rows
        for index, token, logprob in zip(rows.running, tokens, logprobs, strict=True):
            request = rows[index].request
            assert request is not None
            request.accept(token, logprob, self.policy_version)
            if request.outcome is None:
                continue
            finished.append(request)
            self.stats.requests += 1
            if isinstance(request.outcome, EngineError):
                self._slots.wipe(index)
            else:
                rows.settle(index)
        return finished
