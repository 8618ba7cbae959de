"""Gymnasium's rules. Sketches of code are run as they are, with the names they use bound here."""

import ast
import itertools
import random
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import vector, wrappers
from gymnasium.utils.env_checker import check_env

from agentgym import envs
from agentgym.messages import Message, assistant
from agentgym.tools.calculator import calculator

GO = assistant("", ("calculator", {"expression": "1+1"}))
END = assistant("the end")
UNUSUAL = assistant("", ("calculator", {"expression": "7*191"}))
ACTIONS = {"end": END, "go": GO, "noop": GO, "x": UNUSUAL, "a": GO, "action": GO}
UNPACKED = {"o": "observation", "r": "reward", "te": "terminated", "tr": "truncated", "i": "info"}


class Toy(envs.ToolEnv):
    """Ends on any answer and remembers what it was asked to play."""

    tools = (calculator,)

    def __init__(self, max_turns: int | None = None) -> None:
        self.max_turns = max_turns
        self.played: list[Message] = []

    def tasks(self, split: str = "train") -> envs.TaskSet:
        return envs.TaskSet.procedural(lambda index: envs.Task(id=f"{split}-{index}"))

    def prompt(self, task: envs.Task) -> str:
        return f"Question {task.id}"

    def score(self, episode: envs.Episode) -> dict[str, float | None]:
        return {"ended": float(episode.answer is not None)}

    async def areset(
        self, *, seed: int | None = None, options: Any = None
    ) -> envs.base.ResetResult:
        self.played = []
        return await super().areset(seed=seed, options=options)

    async def astep(self, action: Any) -> envs.base.StepResult:
        self.played.append(action)
        return await super().astep(action)


class Paying(envs.Env):
    """Pays what a case says."""

    def __init__(self, reward: Any) -> None:
        self.paid = reward

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return "begin", {}

    def step(self, action: Any) -> Any:
        return "go on", self.paid, False, False, {}


def make(id: str | None = None, **kwargs: Any) -> gymnasium.Env[Any, Any]:
    """`make()` is any env of ours, `make(id)` Gymnasium's own function."""
    if id is None:
        return Toy(**kwargs)
    if "agentgym/Calc-v0" not in gymnasium.registry:
        envs.register("Calc-v0", Toy)
    return gymnasium.make(id, **kwargs)


def play(env: gymnasium.Env[Any, Any], seed: int = 0) -> list[Any]:
    """A whole episode: one call, then an answer; the last step's five values."""
    env.reset(seed=seed)
    env.step(GO)
    return list(env.step(END))


def run(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the system says, and whether it warned."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        return {**_dispatch(case), "warns": bool(warned)}


def _dispatch(case: Mapping[str, Any]) -> Mapping[str, Any]:
    if "code" in case:
        return _run_code(case)
    if "check" in case:
        value = eval(case["check"], _names(case))
        return {"contains": value, "value": value, "ok": bool(value)}
    if "reward" in case:
        return _pay(case["reward"])
    return _play_actions(case)


def _pay(reward: Any) -> Mapping[str, Any]:
    env = Paying(reward)
    check_env(env)
    env.reset(seed=0)
    _, paid, _, _, _ = env.step(GO)
    return {"reward": paid, "type_reward": type(paid).__name__, "error": False}


def _play_actions(case: Mapping[str, Any]) -> Mapping[str, Any]:
    env = Toy(max_turns=case["max_steps"])
    env.reset(seed=0)
    steps = [env.step(ACTIONS.get(action, action)) for action in case["actions"]]
    return {
        "rewards": [step[1] for step in steps],
        "terminated": [step[2] for step in steps],
        "truncated": [step[3] for step in steps],
    }


def _run_code(case: Mapping[str, Any]) -> Mapping[str, Any]:
    names = _names(case)
    if not re.search(r"\benv *=", case["code"]):
        names["env"].reset(seed=0)
    values, errors = [], []
    for statement in ast.parse(case["code"]).body:
        try:
            values.append(_execute(statement, names))
        except NameError:
            if not errors:  # else it needs what an earlier statement failed to give
                raise
        except Exception as error:  # noqa: BLE001 - what it raises is what the case judges
            errors.append(error)
    said: dict[str, Any] = {"ok": not errors, "raises": errors[0] if len(errors) == 1 else errors}
    said |= {"error": "; ".join(map(str, errors)), "message": "; ".join(map(str, errors))}
    return said | dict(_observations(case["code"], names, values))


def _execute(statement: ast.stmt, names: dict[str, Any]) -> Any:
    """Runs one statement; the value if it is an expression."""
    if isinstance(statement, ast.Expr):
        return eval(compile(ast.Expression(statement.value), "case", "eval"), names)
    exec(compile(ast.Module([statement], []), "case", "exec"), names)
    return None


def _observations(code: str, names: dict[str, Any], values: list[Any]) -> Iterator[tuple[str, Any]]:
    """What can be said after the code has run."""
    if values:
        yield "value", values[-1]
    for short, long in UNPACKED.items():
        if short in names:
            yield long, names[short]
            yield f"type_{long}", type(names[short]).__name__
    for one, other in itertools.permutations(_assigned(code), 2):
        yield f"{one}_equals_{other}", names.get(one) == names.get(other)
    if "check_env" in code or "reset(seed" in code:
        yield "check_env_passes", _passes_check_env()
    for attribute in re.findall(r"get_wrapper_attr\('(\w+)'\)", code):
        if values and values[-1] is getattr(names["env"].unwrapped, attribute):
            yield "same_object_as", f"env.unwrapped.{attribute}"
    if isinstance(names.get("v"), vector.VectorEnv):
        yield from _vector(names["v"], values[-1])


def _assigned(code: str) -> set[str]:
    nodes = ast.walk(ast.parse(code))
    return {
        node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def _vector(v: Any, last: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    observations, rewards, terminated, truncated, _ = last
    for index in range(len(v.envs)):
        begins = observations[index][0].content.startswith("Question")
        yield f"env{index}_reward", float(rewards[index])
        yield f"env{index}_terminated", bool(terminated[index])
        yield f"env{index}_truncated", bool(truncated[index])
        yield f"env{index}_obs", "reset observation" if begins else "step observation"
    yield "action_x_executed", any(UNUSUAL in env.played for env in v.envs)
    yield "trajectory_excludes_that_step", v.envs[0].played == []


def _passes_check_env() -> bool:
    for name in ("agentgym/Calc-v0", "agentgym/Calculator-v0"):
        check_env(make(name).unwrapped)
    return True


def _names(case: Mapping[str, Any]) -> dict[str, Any]:
    """Everything a sketch may mention."""
    mentioned = set(re.findall(r"\w+", case.get("code", "")))
    library = {
        name: getattr(module, name)
        for module in (wrappers, vector)
        for name in mentioned.intersection(module.__all__)
    }
    own = {
        "A": Toy,
        "B": Paying,
        "env": Toy(),
        "gym": gymnasium,
        "gymnasium": gymnasium,
        "make": make,
        "np": np,
        "play": play,
        "random": random,
        "register": envs.register,
        "check_env": check_env,
    }
    return library | ACTIONS | own | dict(case)
