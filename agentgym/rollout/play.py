"""One trajectory from reset to record.

Whatever goes wrong ends up in the record; only errors of the caller (`UsageError`), outages and
cancellation leave this module, after the episode was closed.
"""

import asyncio
import time
from dataclasses import dataclass

from agentgym.deadlines import bounded
from agentgym.errors import (
    BudgetError,
    EngineError,
    EnvError,
    EpisodeError,
    RewardError,
    boundary,
)
from agentgym.rollout.player import Player, Score
from agentgym.rollout.record import record
from agentgym.rollout.session import EXITS, EnvTimeoutError, Session
from agentgym.rollout.state import Trajectory
from agentgym.trajectory import RolloutOutput, RolloutRequest, StopReason, Task


@dataclass(frozen=True, slots=True)
class _Ending:
    reason: StopReason
    error: str | None = None


@dataclass(frozen=True, slots=True)
class _Before:
    """Attempts that the infrastructure failed."""

    failures: tuple[str, ...]
    seconds: float


async def run_trajectory(request: RolloutRequest, player: Player) -> RolloutOutput:
    """Play one trajectory, again if the infrastructure failed it.

    Raises:
        OutageError: what every trajectory needs is gone.
        UsageError: the caller must change something.
        asyncio.CancelledError: after the episode was closed.
    """
    failures: list[str] = []
    started = time.perf_counter()
    while True:
        attempt = request.model_copy(update={"attempt": len(failures)})
        lost = time.perf_counter() - started
        output = await _attempt(attempt, player, _Before(tuple(failures), lost))
        if output.stop_reason not in RETRIED or len(failures) + 1 >= player.max_attempts:
            return output
        failures.append(f"{output.stop_reason}: {output.error}")


RETRIED = frozenset({StopReason.API_ERROR, StopReason.INFRA_ERROR, StopReason.TIMEOUT_ENV})
"""Failures of the infrastructure: another attempt may do better."""


async def _attempt(request: RolloutRequest, player: Player, before: _Before) -> RolloutOutput:
    trajectory = Trajectory(request, budget=player.budget)
    if before.failures:
        trajectory.infos["failed_attempts"] = list(before.failures)
        trajectory.spend("failed_attempts", before.seconds)
    session = Session(trajectory, player)
    started = time.perf_counter()
    ending = _Ending(StopReason.CANCELLED)
    try:
        ending = await _play_until_the_end(session, player)
    finally:
        ending = await _close(session, player, ending)
        trajectory.timings["total"] = time.perf_counter() - started
    return await _scored(_recorded(trajectory, ending), player, request.task)


def _recorded(trajectory: Trajectory, ending: _Ending) -> RolloutOutput:
    """The record; if what the env gave cannot be one, a failure that says so."""
    try:
        with boundary(EnvError, "record"):
            return record(trajectory, ending.reason, ending.error)
    except EnvError as error:
        trajectory.tool_results.clear()
        return record(trajectory, StopReason.ENV_ERROR, str(error))


async def _play_until_the_end(session: Session, player: Player) -> _Ending:
    try:
        return _Ending(await _play_in_time(session, player))
    except EpisodeError as error:
        return _Ending(_failure_reason(error), str(error))


async def _play_in_time(session: Session, player: Player) -> StopReason:
    """Why it ended.

    Raises:
        BudgetError: its time was over before anything was sampled.
        EpisodeError: it failed.
    """
    limit_s = player.budget.max_seconds
    try:
        async with asyncio.timeout(limit_s) as deadline:
            with boundary(EnvError, "run", also=EXITS):
                return StopReason(await player.scheduler.run(session))
    except TimeoutError as error:
        assert deadline.expired()
        if session.trajectory.num_sampled:  # what the policy does with its time is its own
            return StopReason.MAX_TIME
        raise BudgetError(f"nothing was sampled within {limit_s:g} s") from error


async def _close(session: Session, player: Player, ending: _Ending) -> _Ending:
    """Run the end hook on every path; what it raises is recorded unless something failed before."""
    trajectory, reason = session.trajectory, ending.reason
    try:
        with boundary(EngineError, "release", also=EXITS):
            player.engine.release(trajectory.request.attempt_id)
    except EngineError as error:
        ending = _unless_failed(ending, error)
    finally:
        end = player.scheduler.on_trajectory_end
        try:
            await session.hook("close", lambda: end(trajectory, reason))
        except EpisodeError as error:
            ending = _unless_failed(ending, error)
    return ending


def _unless_failed(ending: _Ending, error: EpisodeError) -> _Ending:
    return ending if ending.reason.is_failure else _Ending(_failure_reason(error), str(error))


async def _scored(output: RolloutOutput, player: Player, task: Task) -> RolloutOutput:
    if player.score is None or output.stop_reason.is_failure:
        return output
    started = time.perf_counter()
    try:
        with boundary(RewardError, "reward"):
            scored = await bounded(_given(player.score, output, task), player.score_timeout_s)
    except EpisodeError as error:
        update = {"stop_reason": _failure_reason(error), "error": str(error), "reward": None}
        return output.model_copy(update=update)
    timings = {**scored.timings, "reward": time.perf_counter() - started}
    return scored.model_copy(update={"timings": timings})


async def _given(score: Score, output: RolloutOutput, task: Task) -> RolloutOutput:
    with boundary(RewardError, "reward", also=EXITS):
        scored: object = await score(output, task)
    if not isinstance(scored, RolloutOutput):
        raise RewardError(f"reward: the score is a {type(scored).__name__}, no RolloutOutput")
    return scored


def _failure_reason(error: EpisodeError) -> StopReason:
    match error:
        case EnvTimeoutError():
            return StopReason.TIMEOUT_ENV
        case EnvError():
            return StopReason.ENV_ERROR
        case RewardError():
            return StopReason.REWARD_ERROR
        case EngineError():
            return StopReason.API_ERROR
    return StopReason.INFRA_ERROR
