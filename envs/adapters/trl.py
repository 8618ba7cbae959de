"""Envs of this package for TRL's own trainer: `GRPOTrainer(environment_factory=...)`.

TRL takes the methods of a class for its tools, calls `reset` with a row of the data set, and shows
the instances to reward functions. It never tells an environment the policy's last message, so an
answer is played, and paid, by the reward function. Source: TRL 1.16, `trainer/grpo_trainer.py`.
"""

import inspect
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentgym import envs
from agentgym.envs.base import Env, weighted_sum
from agentgym.envs.tool_env import ToolEnv
from agentgym.errors import ConfigError, EpisodeError
from agentgym.messages import Message, ToolCall, assistant
from agentgym.threads import run_coroutine
from agentgym.tools.base import Tool

_PYTHON_TYPES: dict[str, type] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
}
_RESERVED = {"reset", "get_reward"}
_OVER = "The episode is over."


class TrlEnvironment:
    """One env as TRL sees it; `as_environment_factory` adds its tools as methods."""

    def __init__(self) -> None:
        self._env = self._make_env()
        weakref.finalize(self, self._env.close)
        self._rewards: dict[str, float | None] | None = None
        self._step_rewards: list[float] = []
        self._num_calls = 0

    @staticmethod
    def _make_env() -> Env:
        raise NotImplementedError

    def reset(self, **row: Any) -> str:
        """Begin the episode of a row of `environment_rows`; what the env says first.

        Raises:
            ConfigError: the row names no task.
        """
        if "task_index" not in row:
            raise ConfigError(
                "a row must have task_index, so that a group plays one task: use environment_rows"
            )
        index, split = int(row["task_index"]), str(row.get("task_split") or "train")
        task = self._env.tasks(split)[index]
        self._rewards, self._step_rewards, self._num_calls = None, [], 0
        observation, _ = self._env.reset(seed=index, options={"task": task})
        return _said(observation)

    def _call(self, name: str, arguments: dict[str, Any]) -> str:
        """Run a tool as an action of its own."""
        self._num_calls += 1
        call = ToolCall(id=f"call_{self._num_calls}", name=name, arguments=arguments)
        return self._play(Message(role="assistant", tool_calls=(call,)))

    def _play(self, action: Message) -> str:
        if self._rewards is not None:
            return _OVER
        try:
            observation, reward, terminated, truncated, info = self._env.step(action)
        except EpisodeError as error:
            self._rewards = {"env": None}
            return f"The environment failed: {error}"
        self._step_rewards.append(reward)
        if terminated or truncated:
            self._rewards = dict(info.get("rewards") or {"env": sum(self._step_rewards)})
        return _said(observation) or _OVER

    def _finish(self, text: str, *, is_answer: bool) -> dict[str, float | None]:
        """Rewards by name, after playing the last message if the episode still waits for it."""
        if self._rewards is None and is_answer and text.strip():
            self._play(assistant(text))
        if self._rewards is None:
            self._rewards = self._cut()
        return self._rewards

    def _cut(self) -> dict[str, float | None]:
        """Rewards of an episode that ends without an answer."""
        try:
            rewards = run_coroutine(self._env.acut())
        except EpisodeError:
            return {"env": None}
        return dict(rewards) or {"env": sum(self._step_rewards)}

    def _total(self) -> float | None:
        return weighted_sum(self._rewards or {}, self._env.reward_weights)


def as_environment_factory(
    env: str | Callable[[], Env], *, env_args: Mapping[str, Any] | None = None
) -> type[TrlEnvironment]:
    """A class for `environment_factory`; its methods are the env's tools.

    An env that is talked to over several turns, without tools, gets the tool `say`, as TRL has no
    turns of a user. Train on `environment_rows`, with `environment_reward` among the reward
    functions.

    Args:
        env: name of a registered env, or a function that builds one.
        env_args: arguments of a registered env.

    Raises:
        ConfigError: a tool is called as TRL calls methods of its own.
    """
    if isinstance(env, str):
        name, arguments = env, dict(env_args or {})
        make_env: Callable[[], Env] = lambda: envs.make(name, **arguments)  # noqa: E731
    elif env_args:
        raise ConfigError("env_args go to a registered env; a factory has its own arguments")
    else:
        make_env = env
    probe = make_env()
    try:
        methods = {tool.name: _method(tool) for tool in probe.tools}
        if not methods and not isinstance(probe.unwrapped, ToolEnv):
            methods = {"say": _say}
        label = type(probe.unwrapped).__name__
    finally:
        probe.close()
    taken = sorted(_RESERVED & methods.keys())
    if taken:
        raise ConfigError(f"TRL has a use of its own for a method {taken[0]!r}: rename the tool")
    return type(f"Trl{label}", (TrlEnvironment,), {**methods, "_make_env": staticmethod(make_env)})


def environment_rows(
    num: int, *, split: str = "train", system: str | None = None
) -> list[dict[str, Any]]:
    """Rows of a data set: task numbers, and a prompt that `reset` completes.

    Args:
        num: how many tasks.
        split: of the env's tasks.
        system: first message.
    """
    first = [] if system is None else [{"role": "system", "content": system}]
    prompt = [*first, {"role": "user", "content": ""}]
    return [{"prompt": prompt, "task_index": index, "task_split": split} for index in range(num)]


def environment_reward(
    completions: Sequence[Any], environments: Sequence[TrlEnvironment], **_: Any
) -> list[float | None]:
    """A reward function: the env's own return, weighed as it says; `None` = unscored."""
    totals = []
    for completion, environment in zip(completions, environments, strict=True):
        text, is_answer = _last_message(completion)
        environment._finish(text, is_answer=is_answer)
        totals.append(environment._total())
    return totals


def _last_message(completion: Any) -> tuple[str, bool]:
    """Its text, and whether it is an answer: said by the policy, and no call."""
    if isinstance(completion, str):
        return completion, True
    last = completion[-1] if completion else {}
    content = last.get("content") or ""
    return str(content), last.get("role") == "assistant" and not last.get("tool_calls")


def _said(observation: Sequence[Message]) -> str:
    return "\n\n".join(message.content for message in observation if message.content)


def _say(self: TrlEnvironment, message: str) -> str:
    """Say something to the environment.

    Args:
        message: What to say.

    Returns:
        What it answers.
    """
    return self._play(assistant(message))


_say.__name__ = "say"


def _method(tool: Tool) -> Callable[..., str]:
    """A method whose signature and docstring say what the tool's schema says."""
    name = tool.name

    def method(self: TrlEnvironment, **arguments: Any) -> str:
        return self._call(name, arguments)

    properties = tool.parameters.get("properties", {})
    required = set(tool.parameters.get("required", ()))
    ordered = sorted(properties, key=lambda key: key not in required)
    kinds = {key: _python_type(properties[key]) for key in ordered}
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    for key in ordered:
        default = inspect.Parameter.empty if key in required else properties[key].get("default")
        parameters.append(
            inspect.Parameter(
                key,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=default,
                annotation=kinds[key],
            )
        )
    method.__name__ = method.__qualname__ = name
    method.__doc__ = _docstring(tool, {key: properties[key] for key in ordered})
    method.__annotations__ = {**kinds, "return": str}
    method.__dict__["__signature__"] = inspect.Signature(parameters, return_annotation=str)
    return method


def _python_type(schema: Mapping[str, Any]) -> Any:
    kind = schema.get("type")
    return _PYTHON_TYPES.get(kind, str) if isinstance(kind, str) else str


def _docstring(tool: Tool, properties: Mapping[str, Any]) -> str:
    """In Google style, which transformers reads; every argument needs a description there."""
    lines = [_one_line(tool.description) or f"Call {tool.name}."]
    if properties:
        lines += ["", "Args:"]
        for key, schema in properties.items():
            lines.append(f"    {key}: {_one_line(schema.get('description')) or f'The {key}.'}")
    return "\n".join([*lines, "", "Returns:", "    The result."])


def _one_line(text: Any) -> str:
    return " ".join(str(text or "").split())
