"""The turns of one trajectory, exact to the token.

The prompt of every turn is the trace so far, nothing else. A scheduler drives it (`Playing`); each
hook and each call of the engine is foreign code, called within a boundary and a deadline.
"""

import asyncio
import hashlib
import json
import math
import random
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from agentgym.constraint import constraint_of
from agentgym.deadlines import SelfCancelledError, bounded
from agentgym.engines.base import Generation
from agentgym.errors import EngineError, EnvError, boundary
from agentgym.rollout.limits import Remaining, over_budget
from agentgym.rollout.player import Player
from agentgym.rollout.scheduler import NextTurn, Scheduler, TurnResult
from agentgym.rollout.state import Trajectory
from agentgym.rollout.view import View
from agentgym.tokens import Segment
from agentgym.trajectory import StopReason, Turn

T = TypeVar("T")
EXITS = (SystemExit, KeyboardInterrupt)
"""Foreign code that exits must not take the event loop with it."""


class EnvTimeoutError(EnvError):
    """A hook of the scheduler did not return in time."""


class Session:
    """See `agentgym.rollout.scheduler.Playing`."""

    def __init__(self, trajectory: Trajectory, player: Player) -> None:
        self.trajectory = trajectory
        self._player = player
        self._view = View(trajectory, player)

    async def start(self) -> None:
        """Begin the episode and render the first prompt.

        Raises:
            EnvError: there is nothing to answer, or it cannot be rendered.
        """
        trajectory = self.trajectory
        scheduler = self._player.scheduler
        await self.hook("reset", lambda: scheduler.on_trajectory_start(trajectory))
        with boundary(EnvError, "reset"):
            trajectory.schemas = tuple(tool.to_schema() for tool in trajectory.tools)
            if not trajectory.messages:
                raise EnvError("reset: there is no message to answer")
            trajectory.infos["initial_state_hash"] = _state_hash(trajectory)
        with boundary(EnvError, "render"):
            self._view.begin()

    async def turn(self) -> StopReason | None:
        """Sample a turn and play it; the reason if the trajectory is over."""
        trajectory, player = self.trajectory, self._player
        remaining = Remaining.of(trajectory, player)
        if remaining.tokens < 1:
            return remaining.reason
        generation = await self._sample(remaining)
        turn, result = await self._play(generation, remaining)
        return (
            result.stop
            or over_budget(trajectory, player.budget)
            or _check_finished(player.scheduler, trajectory, turn)
        )

    async def next_turn(self) -> NextTurn:
        """What the scheduler's `step` makes of the last turn; its default needs no deadline."""
        scheduler, turn = self._player.scheduler, self.trajectory.turns[-1]
        if type(scheduler).step is Scheduler.step:
            return NextTurn(messages=turn.observation)
        following = await self.hook("step", lambda: scheduler.step(self.trajectory, turn))
        if not isinstance(following, NextTurn):
            raise EnvError(f"step: the scheduler gave a {type(following).__name__}, no NextTurn")
        return following

    async def follow(self, following: NextTurn) -> StopReason | None:
        """Put in what the policy sees next; the reason if an answer does not fit any more."""
        if following.constraint is not None:
            self.trajectory.constraint = constraint_of(following.constraint)
        with boundary(EnvError, "render"):
            fits = self._view.follow(following)
        return None if fits else StopReason.CONTEXT_OVERFLOW

    async def hook(self, action: str, hook: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Call a scheduler's hook: foreign code, with a deadline, its time booked on the env.

        Raises:
            EnvError: it raised, was too slow, or cancelled itself.
        """
        started = time.perf_counter()
        limit_s = self._player.env_timeout_s
        try:
            return await bounded(_guarded(action, hook), limit_s)
        except TimeoutError as error:
            raise EnvTimeoutError(f"{action}: no answer within {limit_s:g} s") from error
        except SelfCancelledError as error:
            raise EnvError(f"{action}: {error}") from error
        finally:
            self.trajectory.spend("env", time.perf_counter() - started)

    async def _sample(self, remaining: Remaining) -> Generation:
        trajectory = self.trajectory
        started = time.perf_counter()
        generation = await self._generate(remaining.tokens)
        trajectory.spend("sample", time.perf_counter() - started)
        with boundary(EngineError, "generate"):
            trajectory.trace.append(_sampled(generation, trajectory, remaining))
        trajectory.num_sampled += len(generation.token_ids)
        trajectory.constraint = None
        return generation

    async def _generate(self, max_tokens: int) -> Generation:
        trajectory, player = self.trajectory, self._player
        sampling = player.sampling.turn(
            seed=turn_seed(trajectory.request.sampling_seed, len(trajectory.turns)),
            max_tokens=max_tokens,
            stop_token_ids=player.renderer.stop_token_ids,
            stop=player.scheduler.stop,
        )
        constraint = constraint_of(trajectory.constraint)
        if constraint is not None:
            sampling = replace(sampling, constraint=constraint)
        try:
            async with asyncio.timeout(player.engine_timeout_s):
                with boundary(EngineError, "generate", also=EXITS):
                    return await player.engine.generate(
                        tuple(trajectory.trace.ids),
                        sampling,
                        session=trajectory.request.attempt_id,
                    )
        except TimeoutError as error:
            limit = f"{player.engine_timeout_s:g} s"
            raise EngineError(f"generate: no answer within {limit}") from error

    async def _play(self, generation: Generation, remaining: Remaining) -> tuple[Turn, TurnResult]:
        """Append the policy's message and let the scheduler play it, unless it was cut."""
        trajectory, player = self.trajectory, self._player
        turn = self._read(generation)
        trajectory.messages.append(turn.action)
        num_calls = len(trajectory.tool_results) + len(turn.action.tool_calls)
        if generation.finish_reason == "length":
            result = TurnResult(stop=remaining.reason)
        elif num_calls > player.budget.max_tool_calls:
            result = TurnResult(stop=StopReason.MAX_TOOL_CALLS)
        else:
            result = await self.hook("step", lambda: player.scheduler.on_turn_end(trajectory, turn))
        with boundary(EnvError, "step"):
            return _take(result, turn, trajectory), result

    def _read(self, generation: Generation) -> Turn:
        """What was sampled, as a turn."""
        trajectory, renderer = self.trajectory, self._player.renderer
        ids, index = generation.token_ids, len(trajectory.turns)
        spoken = self._view.spoken(len(trajectory.trace) - len(ids))
        with boundary(EnvError, "parse"):
            parsed = renderer.parse(
                ids, finish_reason=generation.finish_reason, tools=trajectory.schemas, prefix=spoken
            )
        action = parsed.to_message(turn=index)
        return Turn(
            index=index,
            action=action.model_copy(update={"continues": True}) if spoken else action,
            text=parsed.raw,
            finish_reason=generation.finish_reason,
        )


def _check_finished(scheduler: Scheduler, trajectory: Trajectory, turn: Turn) -> StopReason | None:
    with boundary(EnvError, "check_finished", also=EXITS):
        reason = scheduler.check_finished(trajectory, turn)
        return None if reason is None else StopReason(reason)


def _sampled(generation: Generation, trajectory: Trajectory, remaining: Remaining) -> Segment:
    """The generation as a segment, held against what was asked for."""
    if generation.finish_reason not in ("stop", "stop_string", "length"):
        raise EngineError(f"generate: the engine ended with {generation.finish_reason!r}")
    if not 0 < len(generation.token_ids) <= remaining.tokens:
        raise EngineError(
            f"generate: {len(generation.token_ids)} tokens where 1 to {remaining.tokens} were asked"
        )
    return Segment(
        ids=generation.token_ids,
        source="sampled",
        logprobs=generation.logprobs,
        policy_version=generation.policy_version,
        token_versions=generation.token_versions,
        message_index=len(trajectory.messages),
        constrained=trajectory.constraint is not None,
    )


def _take(result: TurnResult, turn: Turn, trajectory: Trajectory) -> Turn:
    """Book what the turn led to; foreign values, so within a boundary."""
    if result.reward is not None and not math.isfinite(result.reward):
        raise EnvError(f"step: the reward must be finite, got {result.reward}")
    turn = turn.model_copy(update={"observation": result.observation, "reward": result.reward})
    trajectory.turns.append(turn)
    trajectory.tool_results += result.tool_results
    trajectory.rewards.update(result.rewards)
    trajectory.infos.update(result.infos)
    trajectory.constraint = constraint_of(result.constraint)
    return turn


async def _guarded(action: str, hook: Callable[[], Coroutine[Any, Any, T]]) -> T:
    with boundary(EnvError, action, also=EXITS):
        return await hook()


def turn_seed(sampling_seed: int, turn: int) -> int:
    """Seed of one turn's sampler, derived from the trajectory's."""
    return random.Random(f"{sampling_seed}/{turn}").getrandbits(63)


def _state_hash(trajectory: Trajectory) -> str:
    """Equal for trajectories that begin in the same state: task, tools and first messages."""
    parts = [trajectory.request.task.model_dump_json()]
    parts += [message.model_dump_json() for message in trajectory.messages]
    parts += [json.dumps(schema, sort_keys=True) for schema in trajectory.schemas]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
