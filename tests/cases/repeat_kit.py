"""The same trajectories again: in this process, and in others whose sets have another order.

The other processes load this file and the loop's kit alone, so they need none of torch.
"""

import asyncio
import importlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agentgym.engines.base import Sampling
from agentgym.envs import Env, Task, TaskSet
from agentgym.messages import user
from agentgym.rollout import collect
from agentgym.rollout.sampler import Sampler, held_out
from agentgym.trajectory import RolloutOutput, RolloutRequest

kit = importlib.import_module("agentgym_cases_loop_kit")
"""Loaded by the runner, or by `_PROGRAM`."""

_PROGRAM = """
import importlib.util, json, sys
for name in ("loop_kit", "repeat_kit"):
    path = f"{sys.argv[1]}/{name}.py"
    spec = importlib.util.spec_from_file_location(f"agentgym_cases_{name}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
print(json.dumps(module.played(json.loads(sys.argv[2]))), flush=True)
"""
_PLAYED = (
    "n_rollouts",
    "seed",
    "fake_engine_latency",
    "group_size",
    "turns",
    "concurrency",
    "fail_every",
    "split",
)
"""What a case says of each of its runs."""
LONGEST_S = 0.02
"""What a turn takes at most."""


class Echo(Env):
    """One turn or several; pays for what is said, with its own random numbers."""

    def __init__(self, turns: int = 1) -> None:
        self._turns = turns

    def tasks(self, split: str = "train") -> TaskSet:
        return TaskSet.procedural(lambda index: Task(id=f"{split}-{index}", data={"value": index}))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._left = self._turns
        return [user(f"{self.pick_task(options)['value']}?")], {}

    def step(self, action: Any) -> Any:
        self._left -= 1
        drawn = float(self.np_random.random())
        paid = sum(map(ord, action.content)) % 7 + drawn
        return f"{drawn:.6f}", paid, self._left == 0, False, {}


class Failing(Echo):
    """Every so many tasks there is none to be had."""

    def __init__(self, turns: int, fail_every: int) -> None:
        super().__init__(turns)
        self._fail_every = fail_every

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        begun = super().reset(seed=seed, options=options)
        if self._fail_every and self.pick_task(options)["value"] % self._fail_every == 0:
            raise RuntimeError("down")
        return begun


def repeated(case: Mapping[str, Any]) -> dict[str, Any]:
    """The requests of a case again, in this process and under other hash seeds."""
    given = {key: case[key] for key in _PLAYED if key in case}
    concurrencies = case.get("concurrencies", ())
    if isinstance(given.get("concurrency"), list):
        concurrencies = given.pop("concurrency")
    hash_seeds = next(
        (case[key] for key in ("python_hash_seeds", "PYTHONHASHSEED") if key in case), [1, 2]
    )
    first, second = played(given), played(given)
    others = [_in_process(given, hash_seed) for hash_seed in map(str, hash_seeds)]
    others += [played({**given, "concurrency": n}) for n in concurrencies]
    runs = [first, second, *others]
    seeds, requests = first["sampling_seeds"], _requests(case)
    groups = {request.group_id: request.seed for request in requests}
    return {
        "trajectories_equal": all(run["trajectories"] == first["trajectories"] for run in runs),
        "rewards_equal": all(run["rewards"] == first["rewards"] for run in runs),
        "rewards": first["rewards"],
        "members_differ": len({str(t) for t in first["trajectories"]}) > 1,
        "completion_orders": len({tuple(run["ended"]) for run in runs}),
        "sampling_seeds_distinct": len({*seeds}) == len(seeds),
        "env_seeds_equal_in_group": all(r.seed == groups[r.group_id] for r in requests),
        "env_seeds_differ_across_groups": len({*groups.values()}) == len(groups),
        "num_failed": sum(reward is None for reward in first["rewards"]),
        "eval_seeds_disjoint": not {*seeds} & {*_played_seeds({**given, "split": "eval"})},
        "other_seed_differs": played({**given, "seed": case.get("seed", 0) + 1})["trajectories"]
        != first["trajectories"],
    }


def played(case: Mapping[str, Any]) -> dict[str, Any]:
    """What all trajectories of some groups were, and the order in which they ended."""
    return asyncio.run(_play(case))


async def _play(case: Mapping[str, Any]) -> dict[str, Any]:
    count, turns = case["n_rollouts"], case.get("turns", 2)
    sleep_s = _latency(case.get("fake_engine_latency", "random"))
    names = {f"r{n}" for n in range(count)}
    asked: list[Sampling] = []

    async def policy(call: Any) -> str:
        await asyncio.sleep(sleep_s(len(asked)))
        random.random()  # somebody else draws from the process's generator meanwhile
        assert names
        asked.append(call.sampling)
        return f"{random.Random(call.sampling.seed).random():.9f}"

    ended: list[str] = []
    renderer = kit.CharRenderer()
    engine = kit.CallableEngine(
        policy, encode=renderer.encode, decode=renderer.decode, stop_token_id=kit.END
    )
    player = kit.player_for(
        engine,
        renderer,
        lambda: Failing(turns, case.get("fail_every", 0)),
        concurrency=case.get("concurrency", 256),
        on_output=lambda output: ended.append(output.request_id),
    )
    outputs = await collect(_requests(case), player)
    return {
        "trajectories": [_plain(output) for output in outputs],
        "rewards": [output.reward for output in outputs],
        "ended": ended,
        "sampling_seeds": [sampling.seed for sampling in asked],
    }


def _requests(case: Mapping[str, Any]) -> list[RolloutRequest]:
    count, seed = case["n_rollouts"], case.get("seed", 0)
    size = min(case.get("group_size", 4), count)
    if case.get("split", "train") == "eval":
        tasks = Echo().tasks("eval")
        found = held_out("case", tasks, num_tasks=-(-count // size), group_size=size, seed=seed)
        return found[:count]
    sampler = Sampler("case", Echo().tasks(), seed=seed, group_size=size)
    return sampler.groups(range(-(-count // size)))[:count]


def _played_seeds(case: Mapping[str, Any]) -> list[int]:
    seeds: list[int] = played(case)["sampling_seeds"]
    return seeds


def _latency(how: Any) -> Callable[[int], float]:
    """Seconds of a turn by the number of those that ended before it."""
    drawn = random.Random(os.urandom(8))  # another one in every run
    if how == "random":
        return lambda _: drawn.random() * LONGEST_S
    if how == "reversed":
        return lambda number: LONGEST_S / (1 + number)
    if isinstance(how, list):
        return lambda number: min(float(how[number % len(how)]), LONGEST_S)
    if isinstance(how, dict):
        low, high = (float(seconds) for seconds in how.values())
        return lambda _: min(drawn.uniform(low, high), LONGEST_S)
    same = float(how)
    return lambda _: same


def _plain(output: RolloutOutput) -> Any:
    """All of it but the clock."""
    data = json.loads(output.to_json())
    data.pop("timings")
    data["rollout_infos"].pop("tool_seconds", None)
    return data


def _in_process(case: Mapping[str, Any], hash_seed: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(Path(__file__).parent), json.dumps(case)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        timeout=60,
        check=True,
    )
    said: dict[str, Any] = json.loads(done.stdout)
    return said
