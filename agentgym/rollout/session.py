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
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from agentgym.deadlines import SelfCancelledError, bounded
from agentgym.engines.base import Generation
from agentgym.errors import EngineError, EnvError, boundary
from agentgym.messages import Message, assistant
from agentgym.rollout.forking import num_agreeing, rewritten, taken_back
from agentgym.rollout.limits import Remaining, over_budget, room_left
from agentgym.rollout.player import Player
from agentgym.rollout.scheduler import NextTurn, Scheduler, TurnResult
from agentgym.rollout.state import Trajectory
from agentgym.tokens import Segment, Source
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

    async def start(self) -> None:
        """Begin the episode and render the first prompt.

        Raises:
            EnvError: there is nothing to answer, or it cannot be rendered.
        """
        trajectory = self.trajectory
        await self.hook("reset", self._player.scheduler.on_trajectory_start(trajectory))
        with boundary(EnvError, "reset"):
            trajectory.schemas = tuple(tool.to_schema() for tool in trajectory.tools)
            if not trajectory.messages:
                raise EnvError("reset: there is no message to answer")
            trajectory.infos["initial_state_hash"] = _state_hash(trajectory)
        with boundary(EnvError, "render"):
            prompt = self._player.renderer.render(trajectory.messages, trajectory.schemas)
        trajectory.trace.append(Segment(ids=tuple(prompt), source="template", message_index=0))
        trajectory.spoken_from = len(trajectory.trace)

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
        following = await self.hook("step", scheduler.step(self.trajectory, turn))
        if not isinstance(following, NextTurn):
            raise EnvError(f"step: the scheduler gave a {type(following).__name__}, no NextTurn")
        return following

    async def follow(self, following: NextTurn) -> StopReason | None:
        """Put in what the policy sees next; the reason if an answer does not fit any more."""
        with boundary(EnvError, "render"):
            if following.completion is not None:
                self._replace_completion(following.completion)
            if following.continues:
                fits = self._go_on(following.text or "")
            elif following.history is not None:
                fits = self._show(following.history, following.messages)
            else:
                fits = self._answer(following.messages)
        return None if fits else StopReason.CONTEXT_OVERFLOW

    async def hook(self, action: str, hook: Coroutine[Any, Any, T]) -> T:
        """Await a scheduler's hook: foreign code, with a deadline, its time booked on the env.

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
        return generation

    async def _generate(self, max_tokens: int) -> Generation:
        trajectory, player = self.trajectory, self._player
        sampling = player.sampling.turn(
            seed=turn_seed(trajectory.request.sampling_seed, len(trajectory.turns)),
            max_tokens=max_tokens,
            stop_token_ids=player.renderer.stop_token_ids,
            stop=player.scheduler.stop,
        )
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
            result = await self.hook("step", player.scheduler.on_turn_end(trajectory, turn))
        with boundary(EnvError, "step"):
            return _take(result, turn, trajectory), result

    def _read(self, generation: Generation) -> Turn:
        """What was sampled, as a turn."""
        trajectory, renderer = self.trajectory, self._player.renderer
        ids, index = generation.token_ids, len(trajectory.turns)
        spoken = self._spoken(len(trajectory.trace) - len(ids))
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

    def _spoken(self, end: int) -> str:
        """Text of the assistant's message up to the trace's id `end`, where a turn goes on."""
        ids = self.trajectory.trace.ids[self.trajectory.spoken_from : end]
        return self._player.renderer.decode(ids) if ids else ""

    def _answer(self, new: tuple[Message, ...]) -> bool:
        """Say something to the policy; a template that shows history anew forks the trace."""
        trajectory, renderer = self.trajectory, self._player.renderer
        index = len(trajectory.messages)
        trajectory.messages += new
        ids = renderer.rewritten(trajectory.messages, trajectory.schemas, num_new=len(new))
        if ids is not None:
            return self._see(ids)
        return self._append(
            renderer.bridge(trajectory.trace, new, tools=trajectory.schemas), "env", index
        )

    def _show(self, history: tuple[Message, ...], new: tuple[Message, ...]) -> bool:
        """Let the policy see another conversation."""
        trajectory = self.trajectory
        trajectory.messages = [*history, *new]
        return self._see(self._player.renderer.render(trajectory.messages, trajectory.schemas))

    def _see(self, prompt: Sequence[int]) -> bool:
        """Go on from a prompt rendered as a whole, if an answer fits; forks where it must."""
        trajectory, old = self.trajectory, self.trajectory.trace
        if list(prompt[: len(old)]) == list(old.ids):
            return self._append(prompt[len(old) :], "env", len(trajectory.messages) - 1)
        if len(prompt) - len(old) >= room_left(trajectory, self._player):
            return False
        trajectory.branches.append(old.segments)
        trajectory.trace = rewritten(old, prompt)
        trajectory.spoken_from = len(trajectory.trace)
        return True

    def _append(self, ids: Sequence[int], source: Source, message_index: int) -> bool:
        """Add ids that the policy is to answer, if an answer still fits."""
        trajectory = self.trajectory
        if len(ids) >= room_left(trajectory, self._player):
            return False
        trajectory.trace.append(Segment(ids=tuple(ids), source=source, message_index=message_index))
        if source == "env":
            trajectory.spoken_from = len(trajectory.trace)
        return True

    def _go_on(self, text: str) -> bool:
        """Leave the policy's message open, with `text` at its end."""
        trajectory, renderer = self.trajectory, self._player.renderer
        last = trajectory.trace.segments[-1]
        if last.source == "sampled" and last.ids[-1] in renderer.stop_token_ids:
            self._take_back(len(last.ids) - 1)
        index = len(trajectory.messages)
        if text:
            said = assistant(text).model_copy(update={"continues": True})
            trajectory.messages.append(said)
        return self._append(renderer.encode(text), "injected", index)

    def _replace_completion(self, completion: str) -> None:
        """The policy is to have said something else: the sampled ids that agree with it stay."""
        trajectory, renderer = self.trajectory, self._player.renderer
        sampled = trajectory.trace.segments[-1].ids
        kept = num_agreeing(sampled, completion, renderer.decode)
        rest = completion[len(renderer.decode(sampled[:kept])) :]
        spoken = self._spoken(len(trajectory.trace) - len(sampled))
        self._take_back(kept)
        index = len(trajectory.messages) - 1
        trajectory.trace.append(
            Segment(ids=tuple(renderer.encode(rest)), source="injected", message_index=index)
        )
        parsed = renderer.parse(
            renderer.encode(completion),
            finish_reason="stop",
            tools=trajectory.schemas,
            prefix=spoken,
        )
        edited = parsed.to_message(turn=len(trajectory.turns) - 1)
        trajectory.messages[-1] = edited.model_copy(update={"continues": bool(spoken)})

    def _take_back(self, num_kept: int) -> None:
        """Cut what was sampled last to its first ids; the whole stays in the record."""
        trajectory = self.trajectory
        if num_kept == len(trajectory.trace.segments[-1].ids):
            return
        archived, trajectory.trace = taken_back(trajectory.trace, num_kept)
        trajectory.branches.append(archived)


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
        message_index=len(trajectory.messages),
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
    return turn


async def _guarded(action: str, hook: Coroutine[Any, Any, T]) -> T:
    with boundary(EnvError, action, also=EXITS):
        return await hook


def turn_seed(sampling_seed: int, turn: int) -> int:
    """Seed of one turn's sampler, derived from the trajectory's."""
    return random.Random(f"{sampling_seed}/{turn}").getrandbits(63)


def _state_hash(trajectory: Trajectory) -> str:
    """Equal for trajectories that begin in the same state: task, tools and first messages."""
    parts = [trajectory.request.task.model_dump_json()]
    parts += [message.model_dump_json() for message in trajectory.messages]
    parts += [json.dumps(schema, sort_keys=True) for schema in trajectory.schemas]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
