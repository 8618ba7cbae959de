"""One trajectory from reset to record, exact to the token.

The prompt of every turn is the trace so far, nothing else. Whatever goes wrong ends up in the
record; only errors of the caller (`UsageError`) and cancellation leave this module.
"""

import asyncio
import hashlib
import json
import math
import random
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from agentgym.deadlines import SelfCancelledError, bounded
from agentgym.engines.base import Generation
from agentgym.errors import (
    EngineError,
    EnvError,
    EpisodeError,
    RewardError,
    SandboxError,
    boundary,
)
from agentgym.messages import Message
from agentgym.rollout.limits import Remaining, over_budget, room_left
from agentgym.rollout.player import Player
from agentgym.rollout.record import record
from agentgym.rollout.scheduler import NextTurn, Scheduler, TurnResult
from agentgym.rollout.state import Trajectory
from agentgym.tokens import Segment
from agentgym.trajectory import RolloutOutput, RolloutRequest, StopReason, Turn

T = TypeVar("T")
_EXITS = (SystemExit, KeyboardInterrupt)
"""Foreign code that exits must not take the event loop with it."""


class _EnvTimeoutError(EnvError):
    """A hook of the scheduler did not return in time."""


@dataclass(frozen=True, slots=True)
class _Ending:
    reason: StopReason
    error: str | None = None


async def run_trajectory(request: RolloutRequest, player: Player) -> RolloutOutput:
    """Play one trajectory.

    Raises:
        UsageError: the caller must change something.
        asyncio.CancelledError: after the episode was closed.
    """
    trajectory = Trajectory(request)
    started = time.perf_counter()
    ending = _Ending(StopReason.CANCELLED)
    try:
        ending = await _play_until_the_end(trajectory, player)
    finally:
        ending = await _close(trajectory, player, ending)
        trajectory.timings["total"] = time.perf_counter() - started
    return await _scored(_recorded(trajectory, ending), player)


def _recorded(trajectory: Trajectory, ending: _Ending) -> RolloutOutput:
    """The record; if what the env gave cannot be one, a failure that says so."""
    try:
        with boundary(EnvError, "record"):
            return record(trajectory, ending.reason, ending.error)
    except EnvError as error:
        trajectory.tool_results.clear()
        return record(trajectory, StopReason.ENV_ERROR, str(error))


async def _play_until_the_end(trajectory: Trajectory, player: Player) -> _Ending:
    try:
        async with asyncio.timeout(player.budget.max_seconds) as deadline:
            return _Ending(await _play(trajectory, player))
    except TimeoutError as error:
        if deadline.expired():
            return _Ending(StopReason.MAX_TIME)
        return _Ending(StopReason.INFRA_ERROR, f"TimeoutError: {error}")
    except EpisodeError as error:
        return _Ending(_failure_reason(error), str(error))


async def _play(trajectory: Trajectory, player: Player) -> StopReason:
    scheduler = player.scheduler
    await _hook("reset", scheduler.on_trajectory_start(trajectory), trajectory, player)
    with boundary(EnvError, "reset"):
        trajectory.schemas = tuple(tool.to_schema() for tool in trajectory.tools)
        if not trajectory.messages:
            raise EnvError("reset: there is no message to answer")
        trajectory.infos["initial_state_hash"] = _state_hash(trajectory)
    with boundary(EnvError, "render"):
        prompt = player.renderer.render(trajectory.messages, trajectory.schemas)
    trajectory.trace.append(Segment(ids=tuple(prompt), source="template", message_index=0))
    while True:
        remaining = Remaining.of(trajectory, player)
        if remaining.tokens < 1:
            return remaining.reason
        generation = await _sample(trajectory, player, remaining)
        turn, result = await _play_turn(trajectory, player, generation, remaining)
        reason = (
            result.stop
            or over_budget(trajectory, player.budget)
            or _check_finished(scheduler, trajectory, turn)
        )
        if reason is not None:
            return reason
        following = await _hook("step", scheduler.step(trajectory, turn), trajectory, player)
        if not _append_next(trajectory, player, following):
            return StopReason.CONTEXT_OVERFLOW


def _check_finished(scheduler: Scheduler, trajectory: Trajectory, turn: Turn) -> StopReason | None:
    with boundary(EnvError, "check_finished", also=_EXITS):
        reason = scheduler.check_finished(trajectory, turn)
        return None if reason is None else StopReason(reason)


async def _sample(trajectory: Trajectory, player: Player, remaining: Remaining) -> Generation:
    request = trajectory.request
    sampling = player.sampling.turn(
        seed=turn_seed(request.sampling_seed, len(trajectory.turns)),
        max_tokens=remaining.tokens,
        stop_token_ids=player.renderer.stop_token_ids,
    )
    started = time.perf_counter()
    with boundary(EngineError, "generate", also=_EXITS):
        generation = await player.engine.generate(
            tuple(trajectory.trace.ids), sampling, session=request.request_id
        )
    trajectory.spend("sample", time.perf_counter() - started)
    with boundary(EngineError, "generate"):
        trajectory.trace.append(_sampled(generation, trajectory, remaining))
    return generation


def _sampled(generation: Generation, trajectory: Trajectory, remaining: Remaining) -> Segment:
    """The generation as a segment, held against what was asked for."""
    if generation.finish_reason not in ("stop", "length"):
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
        message_index=len(trajectory.messages),
    )


async def _play_turn(
    trajectory: Trajectory, player: Player, generation: Generation, remaining: Remaining
) -> tuple[Turn, TurnResult]:
    """Append the policy's message and let the scheduler play it, unless it was cut."""
    turn = Turn(
        index=len(trajectory.turns),
        action=_read(trajectory, player, generation),
        finish_reason=generation.finish_reason,
    )
    trajectory.messages.append(turn.action)
    num_calls = len(trajectory.tool_results) + len(turn.action.tool_calls)
    if generation.finish_reason == "length":
        result = TurnResult(stop=remaining.reason)
    elif num_calls > player.budget.max_tool_calls:
        result = TurnResult(stop=StopReason.MAX_TOOL_CALLS)
    else:
        played = player.scheduler.on_turn_end(trajectory, turn)
        result = await _hook("step", played, trajectory, player)
    with boundary(EnvError, "step"):
        return _take(result, turn, trajectory), result


def _take(result: TurnResult, turn: Turn, trajectory: Trajectory) -> Turn:
    """Book what the turn led to; foreign values, so within a boundary."""
    if result.reward is not None and not math.isfinite(result.reward):
        raise EnvError(f"step: the reward must be finite, got {result.reward}")
    turn = turn.model_copy(update={"observation": result.observation, "reward": result.reward})
    trajectory.turns.append(turn)
    trajectory.tool_results += result.tool_results
    trajectory.rewards.update(result.rewards)
    trajectory.infos.update(result.infos)
    return turn


def _read(trajectory: Trajectory, player: Player, generation: Generation) -> Message:
    with boundary(EnvError, "parse"):
        parsed = player.renderer.parse(
            generation.token_ids, finish_reason=generation.finish_reason, tools=trajectory.schemas
        )
    return parsed.to_message(turn=len(trajectory.turns))


def _append_next(trajectory: Trajectory, player: Player, following: NextTurn) -> bool:
    """Put what the model sees next into the history, and into the trace if an answer still fits."""
    index = len(trajectory.messages)
    with boundary(EnvError, "render"):
        ids = player.renderer.bridge(trajectory.trace, following.messages, tools=trajectory.schemas)
    trajectory.messages += following.messages
    if len(ids) >= room_left(trajectory, player):
        return False
    trajectory.trace.append(Segment(ids=tuple(ids), source="env", message_index=index))
    return True


async def _hook(
    action: str, hook: Coroutine[Any, Any, T], trajectory: Trajectory, player: Player
) -> T:
    """Await a scheduler's hook: foreign code, with a deadline, its time booked on the env."""
    started = time.perf_counter()
    try:
        return await bounded(_guarded(action, hook), player.env_timeout_s)
    except TimeoutError as error:
        limit = f"{player.env_timeout_s:g} s"
        raise _EnvTimeoutError(f"{action}: no answer within {limit}") from error
    except SelfCancelledError as error:
        raise EnvError(f"{action}: {error}") from error
    finally:
        trajectory.spend("env", time.perf_counter() - started)


async def _guarded(action: str, hook: Coroutine[Any, Any, T]) -> T:
    with boundary(EnvError, action, also=_EXITS):
        return await hook


async def _close(trajectory: Trajectory, player: Player, ending: _Ending) -> _Ending:
    """Run the end hook on every path; what it raises is recorded unless something failed before."""
    closing = player.scheduler.on_trajectory_end(trajectory, ending.reason)
    try:
        with boundary(EngineError, "release", also=_EXITS):
            player.engine.release(trajectory.request.request_id)
    except EngineError as error:
        ending = ending if ending.reason.is_failure else _Ending(StopReason.API_ERROR, str(error))
    try:
        await _hook("close", closing, trajectory, player)
    except EpisodeError as error:
        if not ending.reason.is_failure:
            return _Ending(_failure_reason(error), str(error))
    return ending


async def _scored(output: RolloutOutput, player: Player) -> RolloutOutput:
    if player.score is None or output.stop_reason.is_failure:
        return output
    started = time.perf_counter()
    try:
        with boundary(RewardError, "reward", also=_EXITS):
            scored = await player.score(output)
    except RewardError as error:
        update = {"stop_reason": StopReason.REWARD_ERROR, "error": str(error), "reward": None}
        return output.model_copy(update=update)
    timings = {**scored.timings, "reward": time.perf_counter() - started}
    return scored.model_copy(update={"timings": timings})


def _failure_reason(error: EpisodeError) -> StopReason:
    match error:
        case _EnvTimeoutError():
            return StopReason.TIMEOUT_ENV
        case EnvError():
            return StopReason.ENV_ERROR
        case RewardError():
            return StopReason.REWARD_ERROR
        case EngineError():
            return StopReason.API_ERROR
        case SandboxError():
            return StopReason.INFRA_ERROR
    return StopReason.INFRA_ERROR


def turn_seed(sampling_seed: int, turn: int) -> int:
    """Seed of one turn's sampler, derived from the trajectory's."""
    return random.Random(f"{sampling_seed}/{turn}").getrandbits(63)


def _state_hash(trajectory: Trajectory) -> str:
    """Equal for trajectories that begin in the same state: task, tools and first messages."""
    parts = [trajectory.request.task.model_dump_json()]
    parts += [message.model_dump_json() for message in trajectory.messages]
    parts += [json.dumps(schema, sort_keys=True) for schema in trajectory.schemas]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
