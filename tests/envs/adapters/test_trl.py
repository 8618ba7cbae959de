"""Envs in TRL's own trainer."""

import gc
import inspect
from pathlib import Path
from typing import Any

import pytest
from transformers.utils import get_json_schema

from agentgym.envs import Episode, Task, TaskSet, TextEnv, TextStep, ToolEnv
from agentgym.envs.adapters.trl import (
    as_environment_factory,
    environment_reward,
    environment_rows,
)
from agentgym.errors import ConfigError
from agentgym.tools import ToolContext, tool


@tool
def mix(count: int, names: list[str], exact: bool = True, *, context: ToolContext) -> str:
    """Mix things.

    In any order.

    Args:
        count: How many.
        names: Which ones.
    """
    return f"{count} {names} {exact}"


class Mixing(ToolEnv):
    """A tool with every kind of argument; pays for `done`, and is closed."""

    tools = (mix,)
    num_open = 0

    def __init__(self) -> None:
        Mixing.num_open += 1

    def tasks(self, split: str = "train") -> TaskSet:
        return TaskSet.procedural(lambda index: Task(id=f"{split}-{index}"))

    def prompt(self, task: Task) -> str:
        return f"Task {task.id}"

    async def score(self, episode: Episode) -> dict[str, float | None]:
        if episode.answer == "raise":
            raise ZeroDivisionError
        return {"done": float(episode.answer == "done")}

    async def aclose(self) -> None:
        Mixing.num_open -= 1


class Chat(TextEnv):
    """Ends on `bye`."""

    def start(self, task: Task) -> str:
        return "Hello."

    def respond(self, text: str) -> TextStep:
        return TextStep(f"You said {text}.", reward=0.5, terminated=text == "bye")


def answered(text: str) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": text}]


def test_the_tools_are_methods_that_transformers_can_read() -> None:
    """Names, types, defaults and descriptions reach the model; the context does not."""
    environment = as_environment_factory(Mixing)()
    methods = {
        name
        for name, _ in inspect.getmembers(type(environment), predicate=inspect.isfunction)
        if not name.startswith("_")
    }
    schema = get_json_schema(environment.mix)["function"]  # type: ignore[attr-defined]

    assert methods == {"reset", "mix"}
    assert schema["description"] == "Mix things. In any order."
    properties = schema["parameters"]["properties"]
    assert properties["count"] == {"type": "integer", "description": "How many."}
    assert properties["names"]["type"] == "array"
    assert properties["exact"] == {"type": "boolean", "description": "The exact."}
    assert schema["parameters"]["required"] == ["count", "names"]


def test_an_episode_by_hand() -> None:
    """Reset, calls, answer, reward: as an env of this package has them."""
    environment = as_environment_factory(Mixing)()
    row = environment_rows(3, split="eval")[2]
    assert environment.reset(**row) == "Task eval-2"
    assert environment.mix(count=2, names=["a"]) == "2 ['a'] True"  # type: ignore[attr-defined]
    assert "'count'" in environment.mix(names=[])  # type: ignore[attr-defined]
    assert environment_reward([answered("done")], [environment]) == [1.0]
    assert environment_reward([answered("other")], [environment]) == [1.0]
    environment.reset(**row)
    assert environment_reward([answered("other")], [environment]) == [0.0]


def test_what_is_no_answer_is_not_played_as_one() -> None:
    """A completion that was cut inside its tool calls has none."""
    environment = as_environment_factory(Mixing)()
    environment.reset(task_index=0)
    call = {"role": "assistant", "content": "done", "tool_calls": [{}]}

    assert environment_reward([[call]], [environment]) == [0.0]


def test_a_failed_grader_is_no_zero() -> None:
    """TRL leaves `None` out."""
    environment = as_environment_factory(Mixing)()
    environment.reset(task_index=0)

    assert environment_reward([answered("raise")], [environment]) == [None]


def test_an_env_without_tools_is_talked_to() -> None:
    """TRL has no turns of a user."""
    environment = as_environment_factory(Chat)()
    assert environment.reset(task_index=1) == "Hello."
    assert environment.say("hm") == "You said hm."  # type: ignore[attr-defined]
    assert environment.say("bye") == "You said bye."  # type: ignore[attr-defined]
    assert environment.say("again") == "The episode is over."  # type: ignore[attr-defined]
    assert environment_reward([answered("ok")], [environment]) == [1.0]


def test_instances_are_apart_and_close_with_their_last_reference() -> None:
    """TRL keeps a pool of them and never closes any."""
    gc.collect()
    before = Mixing.num_open
    factory = as_environment_factory(Mixing)
    one, two = factory(), factory()
    one.reset(task_index=0)
    two.reset(task_index=1)
    assert environment_reward([answered("done"), answered("x")], [one, two]) == [1.0, 0.0]
    del one, two
    gc.collect()

    assert Mixing.num_open <= before


def test_rows_must_name_their_task() -> None:
    """Else the members of a group would play different ones."""
    with pytest.raises(ConfigError, match="environment_rows"):
        as_environment_factory("calculator")().reset(prompt="?")
    with pytest.raises(ConfigError, match="env_args go to a registered env"):
        as_environment_factory(Mixing, env_args={"a": 1})


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_trls_own_trainer_takes_a_step(tmp_path: Path) -> None:
    """The embedded policy plays the calculator under `trl.GRPOTrainer` itself."""
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer
    from trl.chat_template_utils import qwen3_schema, qwen3_template

    from agentgym.trainer.tiny_policy import PATH

    played: list[float | None] = []

    def reward(**columns: Any) -> list[float | None]:
        played.extend(environment_reward(**columns))
        return played[-len(columns["environments"]) :]

    tokenizer = AutoTokenizer.from_pretrained(str(PATH))
    tokenizer.response_schema = qwen3_schema  # how TRL reads calls in this dialect
    tokenizer.response_template = qwen3_template
    trainer = GRPOTrainer(
        model=str(PATH),
        processing_class=tokenizer,
        reward_funcs=[reward],
        train_dataset=Dataset.from_list(environment_rows(4)),
        environment_factory=as_environment_factory("calculator", env_args={"levels": [1]}),
        args=GRPOConfig(
            output_dir=str(tmp_path),
            max_steps=1,
            per_device_train_batch_size=4,
            num_generations=4,
            max_completion_length=96,
            use_cpu=True,
            bf16=False,
            report_to="none",
            save_strategy="no",
            seed=1,
        ),
    )
    trainer.train()

    assert {tool.__name__ for tool in trainer.tools} == {"calculator"}
    assert len(played) == 4
    assert all(value is not None for value in played)
    assert sum(environment._num_calls for environment in trainer.environments) > 0
