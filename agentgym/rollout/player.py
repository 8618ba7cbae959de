"""What a rollout needs beside its requests: who samples, renders and referees, and the limits."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from agentgym.engines.base import Engine, Sampling
from agentgym.rendering.base import Renderer
from agentgym.rollout.scheduler import Scheduler
from agentgym.trajectory import Budget, RolloutOutput, Task

MAX_CONCURRENCY = 4096
"""Trajectories at once; each holds an env and, while it is sampled, a row of the cache."""

OnOutput = Callable[[RolloutOutput], None]
Score = Callable[[RolloutOutput, Task], Awaitable[RolloutOutput]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingDefaults:
    """Sampling settings shared by every turn of a rollout."""

    temperature: float = 1.0
    """0.0 is greedy."""
    top_p: float = 1.0
    top_k: int = 0
    """0 = all."""

    def turn(
        self,
        *,
        seed: int,
        max_tokens: int,
        stop_token_ids: frozenset[int],
        stop: tuple[str, ...] = (),
    ) -> Sampling:
        """Settings of one engine call."""
        return Sampling(
            max_tokens=max_tokens,
            seed=seed,
            stop_token_ids=stop_token_ids,
            stop=stop,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Player:
    """Plays trajectories; one player serves training, evaluation and debugging alike."""

    engine: Engine
    renderer: Renderer
    scheduler: Scheduler
    budget: Budget = field(default_factory=Budget)
    sampling: SamplingDefaults = field(default_factory=SamplingDefaults)
    score: Score | None = None
    """Applied to a finished trajectory and its task; may raise an `EpisodeError`."""
    on_output: OnOutput | None = None
    """Called with each trajectory as it ends, in the order of ending."""
    concurrency: int = 256
    """Trajectories in flight at once."""
    env_timeout_s: float = 120.0
    """Longest wait for one hook of the scheduler."""
    engine_timeout_s: float = 300.0
    """Longest wait for one turn of the engine."""
    score_timeout_s: float = 600.0
    """Longest wait for `score`, all reward functions together."""
    max_attempts: int = 2
    """How often a trajectory is played that the infrastructure failed: engine, sandbox, or an env
    that did not answer. What an env or a reward function raises is final."""
    max_failed_fraction: float = 0.5
    """More failed trajectories than this stop the run."""


def failure_summary(outputs: Sequence[RolloutOutput]) -> str:
    """How many failed, why, and the first error in full."""
    failed = [output for output in outputs if output.stop_reason.is_failure]
    counts: dict[str, int] = {}
    for output in failed:
        counts[output.stop_reason] = counts.get(output.stop_reason, 0) + 1
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(counts.items()))
    first = next((output.error for output in failed if output.error), "no error text")
    return f"{len(failed)}/{len(outputs)} trajectories failed ({reasons}); the first: {first}"
