"""vLLM's engine as the one thread of an engine drives it: turns, weights, memory.

Commands run between two steps, so an update falls between two tokens of every turn that is under
way: what was sampled keeps the version of the old weights, keys and values are computed again under
the new ones, and the turn goes on.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from agentgym.engines.base import Generation
from agentgym.engines.local import Ask, EngineStats
from agentgym.engines.promises import is_about_a_constraint
from agentgym.engines.vllm.local_adapters import Adapter, LoadedAdapters
from agentgym.engines.vllm.policy import version_of
from agentgym.engines.vllm.refusals import WeightsRefusedError
from agentgym.engines.vllm.replies import ConstraintRefusedError, Span, to_generation
from agentgym.engines.vllm.replies import Reply as Sampled
from agentgym.engines.vllm.starting import shut_down
from agentgym.engines.worker import Reply
from agentgym.errors import AgentGymError, EngineError, OutageError, boundary

if TYPE_CHECKING:
    from agentgym.engines.vllm.staged import Staging

_TAGS = ("weights", "kv_cache")
"""What sleeps apart, in the order of waking."""


@dataclass(slots=True, eq=False)
class Turn:
    """One turn on its way through vLLM."""

    ask: Ask
    fields: dict[str, Any]
    """Of `SamplingParams`."""
    reply: Reply[Generation]
    outcome: Generation | EngineError | OutageError | None = None
    adapter: Adapter | None = None
    """That samples it; `None` = the model alone."""


class VllmCore:
    """Turns in, outcomes out; all on the worker's thread.

    Args:
        engine: vLLM's `LLMEngine`.
        can_sleep: whether it was started so that its memory can be given away.
    """

    def __init__(self, engine: Any, *, can_sleep: bool) -> None:
        self.policy_version = 0
        self.stats = EngineStats()
        self._engine = engine
        self._can_sleep = can_sleep
        self._asleep: tuple[str, ...] = ()
        self._waiting: list[Turn] = []
        self._running: dict[str, Turn] = {}
        self._num_turns = 0
        self._adapters = LoadedAdapters(engine)
        self._has_failed = False
        """At its last step."""
        self._trouble: str | None = None
        """Why nothing can be sampled any more."""

    @property
    def worker(self) -> Any:
        """vLLM's `Worker`."""
        return self._engine.model_executor.driver_worker.worker

    @property
    def is_busy(self) -> bool:
        return self.is_running or bool(self._waiting)

    @property
    def is_running(self) -> bool:
        return bool(self._running)

    def enter_thread(self) -> None:
        """Compute on vLLM's device, which every thread has to choose anew."""
        import torch

        device = self.worker.device
        if device.type != "cpu":
            torch.accelerator.set_device_index(device)

    def submit(self, request: Turn) -> None:
        """Sample this turn with the next step."""
        self._waiting.append(request)

    def cancel(self, request: Turn) -> None:
        """Free what the turn holds."""
        if request in self._waiting:
            self._waiting.remove(request)
        keys = [key for key, turn in self._running.items() if turn is request]
        for key in keys:
            del self._running[key]
        self._engine.abort_request(keys)
        self._adapters.drop_unused(self._running.values())

    def release(self, session: str) -> None:
        """What is stored is found by its tokens, and goes when its room is needed."""

    def step(self) -> Sequence[Turn]:
        """Let turns join, then sample one token of every running turn."""
        if self._trouble is not None:
            return self._given_up(self._trouble)
        started = perf_counter()
        self._wake(_TAGS)
        refused = self._join()
        try:
            finished = self._sample() if self._running else []
        except AgentGymError:
            self._waiting = refused  # they go back with the others
            raise
        self.stats.seconds += perf_counter() - started
        return [*refused, *finished]

    def rest(self) -> None:
        """Nothing of it belongs to anybody else."""

    def abandon(self) -> list[Turn]:
        """Hand back every turn."""
        turns = [*self._running.values(), *self._waiting]
        keys = list(self._running)
        self._running, self._waiting = {}, []
        try:
            with boundary(EngineError, "vLLM cannot drop its turns"):
                self._engine.abort_request(keys)
        except AgentGymError as error:
            self._trouble = str(error)
        return turns

    def swap_in(self, staging: "Staging", version: int) -> int:
        """Serve what was staged; returns the policy version.

        Raises:
            WeightsRefusedError: it is not complete; the old weights serve.
            EngineError: vLLM failed; nothing can be sampled any more.
        """
        from vllm.config import set_current_vllm_config

        from agentgym.engines.vllm.loading import served_model

        staging.complete()
        worker = self.worker
        served = served_model(worker.vllm_config, worker.model_runner.get_model())
        self._wake(_TAGS[:1])
        try:
            with boundary(EngineError, "vLLM failed at taking the new weights"):
                with set_current_vllm_config(worker.vllm_config):
                    served.swap_in(staging)
                worker.model_runner.reset_lora_state()
                self._engine.engine_core.set_weight_version(str(version))
                self._engine.reset_prefix_cache(reset_running_requests=True)
        except WeightsRefusedError:
            raise
        except AgentGymError as error:
            self._trouble = f"{error}; make a new engine"
            raise EngineError(self._trouble) from error
        self._adapters.current = None
        self._adapters.drop_unused(self._running.values())
        self.policy_version = version
        return version

    def adopt(self, adapter: Adapter) -> int:
        """Sample new turns with an adapter; those under way end with what they began with.

        Raises:
            ConfigError: it is none for this model; the weights of before serve.
        """
        self._wake(_TAGS[:1])
        self._adapters.load(adapter)
        self._adapters.drop_unused(self._running.values())
        self.policy_version = adapter.version
        return self.policy_version

    def sleep(self) -> None:
        """Weights to the host's memory, keys and values dropped.

        Raises:
            EngineError: turns are being sampled.
        """
        if self.is_busy:
            num = len(self._running) + len(self._waiting)
            raise EngineError(f"the engine cannot sleep: {num} turns are being sampled")
        if self._can_sleep and self._asleep != _TAGS:
            self._wake(_TAGS)  # what an update has left asleep vLLM cannot put to sleep again
            self._engine.sleep(level=1)
            self._asleep = _TAGS

    def close(self) -> None:
        """Free everything; the last call."""
        self._adapters.close()
        shut_down(self._engine)
        self._engine = None

    def _wake(self, tags: Sequence[str]) -> None:
        sleeping = [tag for tag in tags if tag in self._asleep]
        if sleeping:
            self._engine.wake_up(sleeping)
            self._asleep = tuple(tag for tag in self._asleep if tag not in sleeping)

    def _given_up(self, trouble: str) -> list[Turn]:
        """Every turn: what runs would go on with weights that nobody knows."""
        turns = self.abandon()
        for turn in turns:
            turn.outcome = OutageError(trouble)
        return turns

    def _join(self) -> list[Turn]:
        """Hand waiting turns to vLLM; returns those that it refuses."""
        waiting, self._waiting = self._waiting, []
        for turn in waiting:
            try:
                with boundary(EngineError, "vLLM refuses the turn"):
                    self._add(turn)
            except AgentGymError as error:
                turn.outcome = _refusal(error, turn)
        return [turn for turn in waiting if turn.outcome is not None]

    def _add(self, turn: Turn) -> None:
        from vllm.inputs.engine import tokens_input

        self._num_turns += 1
        key = str(self._num_turns)
        adapter = turn.adapter = self._adapters.current
        self._engine.add_request(
            key,
            tokens_input(list(turn.ask.prompt_ids)),
            _params(turn.fields),
            lora_request=adapter.request if adapter else None,
        )
        self._running[key] = turn

    def _sample(self) -> list[Turn]:
        try:
            with boundary(EngineError, "vLLM failed"):
                outputs = self._engine.step()
        except AgentGymError as error:
            if self._has_failed:  # turns that had ended before would be a biased part of a window
                self._trouble = f"{error}, twice in a row; make a new engine"
                return self._given_up(self._trouble)
            self._has_failed = True
            raise
        self._has_failed = False
        self.stats.decode_steps += 1
        finished = []
        for output in outputs:
            if output.finished and (turn := self._running.pop(output.request_id, None)):
                turn.outcome = _outcome(output, turn)
                self._count(output, turn)
                finished.append(turn)
        if finished:
            self._adapters.drop_unused(self._running.values())
        return finished

    def _count(self, output: Any, turn: Turn) -> None:
        cached = output.num_cached_tokens or 0
        self.stats.requests += 1
        self.stats.reused_tokens += cached
        self.stats.prefilled_tokens += len(turn.ask.prompt_ids) - cached
        self.stats.sampled_tokens += len(output.outputs[0].token_ids)


def _params(fields: dict[str, Any]) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    structured = fields.get("structured_outputs")
    own = {"structured_outputs": StructuredOutputsParams(**structured)} if structured else {}
    kind = RequestOutputKind.FINAL_ONLY
    return SamplingParams(**(fields | own), output_kind=kind, flat_logprobs=True)


def _refusal(error: AgentGymError, turn: Turn) -> EngineError:
    """Whose fault it is: prompt and limits are right, or the turn would not have come here."""
    constraint, cause = turn.ask.sampling.constraint, error.__cause__
    if constraint is not None and cause is not None and is_about_a_constraint(str(cause)):
        return ConstraintRefusedError(constraint, str(cause))
    return EngineError(" ".join(str(error).split()))


def _outcome(output: Any, turn: Turn) -> Generation | EngineError:
    try:
        return _generation(output.outputs[0], turn)
    except EngineError as error:
        return error


def _generation(choice: Any, turn: Turn) -> Generation:
    logprobs = tuple(choice.logprobs.logprobs) if choice.logprobs is not None else ()
    if not all(map(math.isfinite, logprobs)):
        raise EngineError("the model's logits are not finite")
    spans = tuple(Span(span.version, span.start, span.end) for span in choice.weight_versions or ())
    adapter = turn.adapter
    versions = {
        span.label: adapter.version if adapter else version_of(span.label) or 0 for span in spans
    }
    sampled = Sampled(
        token_ids=tuple(choice.token_ids),
        logprobs=logprobs,
        finish_reason=str(choice.finish_reason),
        ended_by=choice.stop_reason,
        spans=spans,
    )
    return to_generation(sampled, turn.ask.sampling, versions)
