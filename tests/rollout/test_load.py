"""Two hundred trajectories, every fifth of which does its worst: the others never notice.

One batch holds one trajectory per fault; the records of the sound ones must be, byte for byte,
those of a batch without any fault.
"""

import asyncio
import math
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

import pytest

from agentgym import threads
from agentgym.engines.scripted import CallableEngine, EngineCall
from agentgym.envs import Episode, Task, TaskSet, ToolEnv
from agentgym.errors import RewardError
from agentgym.rendering import Renderer
from agentgym.rollout import GymScheduler, Player, collect
from agentgym.tools import Tool, ToolContext, tool
from agentgym.trajectory import Budget, RolloutOutput, RolloutRequest, StopReason

COUNT = 200
TOOL_TIMEOUT_S, HOOK_TIMEOUT_S = 2.0, 4.0
"""Far above what the whole batch takes, so that a busy machine is no fault."""
TOLD_TO_THE_MODEL = (
    *("tool:hang", "tool:crash", "tool:exit", "tool:interrupt", "tool:stop"),
    *("tool:object", "tool:surrogate", "tool:nan", "tool:bytes", "tool:huge", "tool:message"),
    *("async_tool:hang", "async_tool:crash", "async_tool:exit", "async_tool:cancel"),
    *("async_tool:surrogate", "async_tool:object"),
)
FAILURES = {
    "prompt:crash": StopReason.ENV_ERROR,
    "prompt:exit": StopReason.ENV_ERROR,
    "prompt:hang": StopReason.TIMEOUT_ENV,
    "step:crash": StopReason.ENV_ERROR,
    "step:exit": StopReason.ENV_ERROR,
    "step:cancel": StopReason.ENV_ERROR,
    "step:hang": StopReason.TIMEOUT_ENV,
    "step:nan": StopReason.ENV_ERROR,
    "step:shape": StopReason.ENV_ERROR,
    "step:text": StopReason.ENV_ERROR,
    "step:info": StopReason.ENV_ERROR,
    "step:report": StopReason.ENV_ERROR,
    "score:crash": StopReason.REWARD_ERROR,
    "score:exit": StopReason.REWARD_ERROR,
    "score:hang": StopReason.TIMEOUT_ENV,
    "score:none": StopReason.ENV_ERROR,
    "close:crash": StopReason.ENV_ERROR,
    "close:exit": StopReason.ENV_ERROR,
    "engine:crash": StopReason.API_ERROR,
    "engine:exit": StopReason.API_ERROR,
    "engine:hang": StopReason.API_ERROR,
    "reward:crash": StopReason.REWARD_ERROR,
    "reward:exit": StopReason.REWARD_ERROR,
    "reward:refused": StopReason.REWARD_ERROR,
}
FAULTS = (*TOLD_TO_THE_MODEL, *FAILURES, "score:nan")
PLACES = {name: 4 * number + 1 for number, name in enumerate(FAULTS)}
"""Index of the trajectory that has the fault."""


class Faults:
    """What goes wrong where, if anything does."""

    def __init__(self, *, present: bool) -> None:
        self._by_index = {i: name.split(":") for name, i in PLACES.items()} if present else {}
        self.release = threading.Event()

    def at(self, place: str, index: int) -> str | None:
        """What is to go wrong here."""
        where, what = self._by_index.get(index, ("", ""))
        return what if where == place else None

    def act(self, what: str | None) -> None:
        """In sync code."""
        if what == "hang":
            self.release.wait(60)
        if what == "crash":
            raise RuntimeError("broken")
        if what == "exit":
            sys.exit(3)
        if what == "interrupt":
            raise KeyboardInterrupt
        if what == "stop":
            raise StopIteration

    async def act_async(self, what: str | None) -> None:
        """In a coroutine."""
        if what == "hang":
            await asyncio.sleep(60)
        elif what == "cancel":
            raise asyncio.CancelledError
        else:
            self.act(what)


LIES: dict[str, Any] = {
    "object": object(),
    "surrogate": "\ud800",
    "nan": {"a": math.nan},
    "bytes": b"\xff",
    "huge": "x" * 1_000_000,
    "message": [object],
}


def tools_with(faults: Faults) -> tuple[Tool, ...]:
    @tool(timeout_s=TOOL_TIMEOUT_S)
    def double(x: int, context: ToolContext) -> object:
        """Twice the number."""
        what = faults.at("tool", context.state["index"])
        faults.act(what)
        return LIES.get(what or "", 2 * x)

    @tool(timeout_s=TOOL_TIMEOUT_S)
    async def twice(x: int, context: ToolContext) -> object:
        """Twice the number, on the event loop."""
        what = faults.at("async_tool", context.state["index"])
        await faults.act_async(what)
        return LIES.get(what or "", 2 * x)

    return double, twice


class Loaded(ToolEnv):
    """Doubles a number with one of two tools; may go wrong everywhere."""

    def __init__(self, faults: Faults, tools: tuple[Tool, ...]) -> None:
        self.faults = faults
        self.tools = tools

    def tasks(self, split: str = "train") -> TaskSet:
        return TaskSet.procedural(lambda index: Task(id=str(index), data={"index": index}))

    def prompt(self, task: Task) -> str:
        self.faults.act(self.faults.at("prompt", task["index"]))
        return f"Double {task['index']}."

    async def areset(self, *, seed: int | None = None, options: Any = None) -> Any:
        result = await super().areset(seed=seed, options=options)
        self.episode.state["index"] = self.episode.task["index"]
        return result

    async def astep(self, action: Any) -> Any:
        what = self.faults.at("step", self.episode.task["index"])
        await self.faults.act_async(what)
        observation, reward, terminated, truncated, info = await super().astep(action)
        lies: dict[str, Any] = {
            "nan": (observation, math.nan, terminated, truncated, info),
            "shape": (observation, reward),
            "text": (observation, "a lot", terminated, truncated, info),
            "info": (observation, reward, True, False, {"stop_reason": "never heard of"}),
            "report": (observation, reward, True, False, {"report": 3}),
        }
        return lies.get(what or "", (observation, reward, terminated, truncated, info))

    def score(self, episode: Episode) -> dict[str, float | None]:
        what = self.faults.at("score", episode.task["index"])
        self.faults.act(what)
        if what == "none":
            return {}
        return {"right": math.nan if what == "nan" else float(episode.answer is not None)}

    def close(self) -> None:
        self.faults.act(self.faults.at("close", self.episode.task["index"]))


def request(index: int) -> RolloutRequest:
    return RolloutRequest(
        request_id=str(index),
        group_id=str(index // 4),
        env="loaded",
        task=Task(id=str(index), data={"index": index}),
        seed=index // 4,
        sampling_seed=index,
    )


def call(name: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {{"x": 2}}}}\n</tool_call>'


async def play(renderer: Renderer, *, faulty: bool) -> list[RolloutOutput]:
    """The whole batch."""
    faults = Faults(present=faulty)
    tools = tools_with(faults)
    turns = ("\n".join((call("double"), call("twice"), call("double"))), "4")

    async def policy(asked: EngineCall) -> str:
        index = int(asked.session.partition("~")[0])
        await faults.act_async(faults.at("engine", index))
        return turns[asked.turn]

    async def score(output: RolloutOutput, _: Task) -> RolloutOutput:
        what = faults.at("reward", int(output.task_id))
        faults.act(what)
        if what == "refused":
            raise RewardError("reward: no verdict")
        return output.model_copy(update={"rewards": {**output.rewards, "length": 1.0}})

    player = Player(
        engine=CallableEngine(policy, encode=renderer.encode),
        renderer=renderer,
        scheduler=GymScheduler(lambda: Loaded(faults, tools)),
        budget=Budget(max_sampled_tokens=4096),
        score=score,
        env_timeout_s=HOOK_TIMEOUT_S,
        engine_timeout_s=HOOK_TIMEOUT_S,
        concurrency=64,
        max_attempts=1,
    )
    try:
        return await collect([request(index) for index in range(COUNT)], player)
    finally:
        faults.release.set()


def written(output: RolloutOutput) -> str:
    """The record without its clocks."""
    infos = {**output.rollout_infos, "tool_seconds": 0}
    return output.model_copy(update={"timings": {}, "rollout_infos": infos}).to_json()


@dataclass(frozen=True)
class Batches:
    """The same batch without faults and with them."""

    sound: list[RolloutOutput]
    faulty: list[RolloutOutput]
    threads_left: int
    """More than before, once those that hung were let go."""


@pytest.fixture(scope="module")
def batches(renderer: Renderer) -> Batches:
    sound = asyncio.run(play(renderer, faulty=False))
    before = busy_threads()
    faulty = asyncio.run(play(renderer, faulty=True))
    deadline = time.monotonic() + 20
    while busy_threads() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    return Batches(sound, faulty, busy_threads() - before)


def busy_threads() -> int:
    """Without those that wait for work."""
    return threading.active_count() - len(threads._idle)


def test_all_others_are_byte_for_byte_what_they_are_without_the_faults(batches: Batches) -> None:
    """Invariant 8, under load; nothing but the clocks may differ."""
    others = sorted(set(range(COUNT)) - set(PLACES.values()))

    assert len(others) > COUNT / 2
    assert [written(batches.faulty[i]) for i in others] == [
        written(batches.sound[i]) for i in others
    ]
    assert not any(output.stop_reason.is_failure for output in batches.sound)


@pytest.mark.parametrize("name", TOLD_TO_THE_MODEL)
def test_a_bad_tool_is_told_to_the_model(batches: Batches, name: str) -> None:
    """Whatever it raises or returns, its trajectory goes on and can be written down."""
    output, sound = batches.faulty[PLACES[name]], batches.sound[PLACES[name]]

    assert (output.stop_reason, output.error) == (StopReason.FINAL_ANSWER, None)
    assert written(output) != written(sound)
    assert len(output.messages) == len(sound.messages)
    assert RolloutOutput.from_json(output.to_json()) == output


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_is_recorded_on_its_trajectory(batches: Batches, name: str) -> None:
    output = batches.faulty[PLACES[name]]

    assert output.stop_reason == FAILURES[name]
    assert output.error
    assert output.reward is None
    assert RolloutOutput.from_json(output.to_json()) == output


def test_a_score_that_is_no_number_is_unscored(batches: Batches) -> None:
    """NaN is no reward of 0, and no failure of the infrastructure either."""
    output = batches.faulty[PLACES["score:nan"]]

    assert output.rewards["right"] is None
    assert output.stop_reason == StopReason.FINAL_ANSWER


def test_no_thread_is_left_once_what_hung_was_let_go(batches: Batches) -> None:
    """Idle workers wait for more work, and are reused."""
    assert batches.threads_left <= 0
