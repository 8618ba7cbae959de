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
FIELDS = ("observation", "reward", "terminated", "truncated", "info")
NAMES = {"o": "observation", "obs": "observation", "r": "reward", "rew": "reward", "i": "info"}
NAMES |= {"te": "terminated", "term": "terminated", "tr": "truncated", "trunc": "truncated"}
NAMES |= {field: field for field in FIELDS}


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
    env = Toy(max_turns=case.get("max_steps"))
    env.reset(seed=case.get("seed", 0))
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
    values: list[Any] = []
    errors: list[Exception] = []
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
    """Runs one statement; the value if it is an expression or an assignment."""
    if isinstance(statement, ast.Expr):
        return eval(compile(ast.Expression(statement.value), "case", "eval"), names)
    exec(compile(ast.Module([statement], []), "case", "exec"), names)
    if isinstance(statement, ast.Assign):
        return eval(ast.unparse(statement.targets[0]), names)
    return None


def _observations(code: str, names: dict[str, Any], values: list[Any]) -> Iterator[tuple[str, Any]]:
    """What can be said after the code has run."""
    if values:
        yield "value", values[-1]
    for field, value in _fields(code, names, values):
        yield field, value
        yield f"type_{field}", type(value).__name__
    for one, other in itertools.permutations(_assigned(code), 2):
        yield f"{one}_equals_{other}", _plain(names.get(one)) == _plain(names.get(other))
    if "check_env" in code or "reset(seed" in code:
        yield "check_env_passes", _passes_check_env()
    for attribute in re.findall(r"get_wrapper_attr\('(\w+)'\)", code):
        if values and values[-1] is getattr(names["env"].unwrapped, attribute):
            yield "same_object_as", f"env.unwrapped.{attribute}"
    vectors = [value for value in names.values() if isinstance(value, vector.VectorEnv)]
    steps = [value for value in values if _is_step(value)]
    if vectors and steps:
        yield from _vector(vectors[-1], steps[-1])


def _fields(code: str, names: dict[str, Any], values: list[Any]) -> Iterator[tuple[str, Any]]:
    """What steps and resets returned, the last one last; what the sketch has named overrides."""
    for value in values:
        if _is_step(value):
            yield from zip(FIELDS, value, strict=True)
        elif isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], dict):
            yield from zip(("observation", "info"), value, strict=True)
    named = _assigned(code) & NAMES.keys() & names.keys()
    yield from ((NAMES[name], names[name]) for name in named)


def _is_step(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 5 and isinstance(value[4], dict)


def _plain(value: Any) -> Any:
    """With lists for arrays, which have no truth value."""
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value.tolist()]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return type(value)(map(_plain, value)) if type(value) in (list, tuple) else value


def _assigned(code: str) -> set[str]:
    nodes = ast.walk(ast.parse(code))
    return {
        node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def _vector(v: Any, last: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    observations, rewards, terminated, truncated, _ = last
    begins = [_is_question(observation) for observation in observations]
    for index in range(v.num_envs):
        yield f"env{index}_reward", float(rewards[index])
        yield f"env{index}_terminated", bool(terminated[index])
        yield f"env{index}_truncated", bool(truncated[index])
        yield f"env{index}_obs", "reset observation" if begins[index] else "step observation"
    toys = [env.unwrapped for env in v.envs] if isinstance(v, vector.SyncVectorEnv) else []
    ours = [toy for toy in toys if isinstance(toy, Toy)]
    if toys and len(ours) == len(toys):
        begun = [toy.played for toy, new in zip(ours, begins, strict=True) if new]
        yield "action_x_executed", any(UNUSUAL in toy.played for toy in ours)
        yield "trajectory_excludes_that_step", bool(begun) and not any(begun)


def _is_question(observation: Any) -> bool:
    """Whether it is what an episode begins with; the last step's observation is empty."""
    return bool(len(observation)) and observation[0].content.startswith("Question")


def _passes_check_env() -> bool:
    for name in ("agentgym/Calc-v0", "agentgym/Calculator-v0"):
        check_env(make(name).unwrapped)
    return True


def _names(case: Mapping[str, Any]) -> dict[str, Any]:
    """Everything a sketch may mention."""
    sketch = case["code"] if "code" in case else case["check"]
    mentioned = set(re.findall(r"\w+", sketch))
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
    given = {name: case[name] for name in mentioned if name in case}
    return library | ACTIONS | own | given
