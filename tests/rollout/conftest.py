"""A small env, a byte tokenizer and a scripted engine: everything real but the model."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from agentgym.engines.scripted import CallableEngine, ScriptedEngine
from agentgym.envs import Env, Episode, Task, TaskSet, ToolEnv
from agentgym.rendering import Renderer, renderer_for
from agentgym.rollout import GymScheduler, Player
from agentgym.testing import byte_tokenizer
from agentgym.tools import Tool, tool
from agentgym.trajectory import Budget, RolloutRequest


@tool
def add(x: int, y: int) -> int:
    """Add two numbers.

    Args:
        x: First.
        y: Second.
    """
    return x + y


class AddEnv(ToolEnv):
    """Adds two numbers; counts how many of its kind are open."""

    num_open = 0
    tools: tuple[Tool, ...] = (add,)
    reward_weights = {"correct": 1.0, "short": 0.0}

    def __init__(self) -> None:
        super().__init__()
        AddEnv.num_open += 1
        self._is_open = True

    def tasks(self, split: str) -> TaskSet:
        return TaskSet.procedural(lambda i: Task(id=f"{split}-{i}", data={"x": i, "y": 2}))

    def prompt(self, task: Task) -> str:
        return f"{task['x']}+{task['y']}?"

    def score(self, episode: Episode) -> dict[str, float | None]:
        answer = str(episode.task["x"] + episode.task["y"])
        return {"correct": float(episode.answer == answer), "short": None}

    def close(self) -> None:
        if self._is_open:
            AddEnv.num_open -= 1
        self._is_open = False
        super().close()


@pytest.fixture(scope="session")
def renderer() -> Renderer:
    return renderer_for(byte_tokenizer())


@pytest.fixture(autouse=True)
def no_env_is_left_open() -> Iterator[None]:
    """Invariant 7, after every test of the loop."""
    AddEnv.num_open = 0
    yield
    assert AddEnv.num_open == 0


@pytest.fixture
def request_for() -> Callable[..., RolloutRequest]:
    """Member `member` of group `index`."""

    def make(index: int = 1, *, member: int = 0) -> RolloutRequest:
        return RolloutRequest(
            request_id=f"{index}-{member}",
            group_id=str(index),
            env="add",
            task=Task(id=str(index), data={"x": index, "y": 2}),
            seed=index,
            sampling_seed=1000 * index + member,
        )

    return make


@pytest.fixture
def call() -> str:
    """A well-formed call of `add`."""
    return '<tool_call>\n{"name": "add", "arguments": {"x": 1, "y": 2}}\n</tool_call>'


@pytest.fixture
def add_env() -> type[AddEnv]:
    return AddEnv


@pytest.fixture
def make_player(renderer: Renderer) -> Callable[..., Player]:
    """A player over a script (turns of every trajectory) or an engine."""

    def make(
        script: Sequence[Any] | CallableEngine,
        make_env: Callable[[], Env] = AddEnv,
        *,
        max_context: int = 4096,
        **options: Any,
    ) -> Player:
        engine = script
        if not isinstance(engine, CallableEngine):
            engine = ScriptedEngine(
                script, encode=renderer.encode, max_context=max_context
            ).recording()
        budget = options.pop("budget", Budget())
        return Player(
            engine=engine,
            renderer=renderer,
            scheduler=GymScheduler(make_env),
            budget=budget,
            **options,
        )

    return make
