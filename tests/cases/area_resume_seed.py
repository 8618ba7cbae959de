"""Runs that go on, runs that repeat themselves, and runs that do not grow, of the real trainer.

What loads torch is loaded late: the process that plays under another hash seed needs none of it.
"""

import asyncio
import gc
import importlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentgym.envs import Env, Task, TaskSet
from agentgym.messages import user
from agentgym.rollout import collect
from agentgym.rollout.sampler import Sampler
from agentgym.rollout.state import Trajectory
from agentgym.store import RunFolder
from agentgym.trajectory import RolloutOutput

kit = importlib.import_module("agentgym_cases_loop_kit")
"""Loaded by the runner, or by `_PROGRAM`."""

_PROGRAM = """
import importlib.util, json, sys
for name in ("loop_kit", "area_resume_seed"):
    path = f"{sys.argv[1]}/{name}.py"
    spec = importlib.util.spec_from_file_location(f"agentgym_cases_{name}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
print(json.dumps(module.played(json.loads(sys.argv[2]))), flush=True)
"""
_NUMBER = re.compile(r"\d+")


def run(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """Whatever the input describes: a run in parts, a run twice, or a long one."""
    if "measure_after" in case:
        return _growth(case)
    if "n_rollouts" in case:
        return _repeated(case)
    if "dataset" in case or "dataset_size" in case:
        return _order(case)
    return _state(case)


# --- a run in parts


def _order(case: Mapping[str, Any]) -> dict[str, Any]:
    """Which tasks the optimizer steps see, in one go and in parts."""
    parts = _parts(case)
    rows = case.get("dataset") or list(range(case["dataset_size"]))
    common = {
        "group_size": case.get("group_size", 2),
        "batch": case["batch"],
        "shuffle": case.get("shuffle", True),
        "seed": case.get("seed", 0),
        "accumulation": case.get("accumulation", 1),
        "iterations": case.get("iterations", 1),
    }
    with _folder() as folder:
        whole = _Run(folder / "whole", rows=rows, **common)
        whole.go(sum(parts))
        again = _Run(folder / "parts", rows=rows, **common)
        for number, steps in enumerate(parts):
            if number:
                _between(case, again)
            again.go(steps)
    epochs = _epochs(whole.seen, len(rows))
    return {
        "order_seen_equals_uninterrupted": again.seen == whole.seen,
        "order_seen": again.seen,
        "global_step": again.step,
        "each_task_once_per_epoch": all(sorted(e) == sorted(map(str, rows)) for e in epochs),
        "epochs_differ": len({tuple(epoch) for epoch in epochs}) == len(epochs),
        "resumed_from": again.resumed_from,
    }


def _between(case: Mapping[str, Any], run: "_Run") -> None:
    """What became of the run, or of its settings, until it is resumed."""
    if broken := case.get("broken_newest"):
        run.break_newer_checkpoint("trainer_state.json" if broken is True else broken)
    for name in case.get("lost", ()):
        run.newest.joinpath(name).unlink()
    run.batch = case.get("resume_batch", run.batch)
    run.change(case.get("resume_with", {}))


def _state(case: Mapping[str, Any]) -> dict[str, Any]:
    """Weights, optimizer and learning rate, in one go and in parts."""
    for described in ("toy_policy", "policy"):
        assert isinstance(case.get(described, ""), str)
    common: dict[str, Any] = {
        "rows": list(range(10)),
        "learns": True,
        "seed": case.get("seed", 0),
        "optim": case.get("optimizer", "adamw_torch"),
        "schedule": case.get("scheduler", "linear"),
        "warmup": case.get("warmup_steps", 0),
        "iterations": case.get("iterations", 1),
    }
    total, parts = case["steps_a"], _numbers(case["steps_b"])
    with _folder() as folder:
        whole = _Run(folder / "whole", **common, planned=total)
        whole.go(total)
        again = _Run(folder / "parts", **common, planned=total)
        for steps in parts:
            again.go(steps)
    difference = max(abs(a - b) for a, b in zip(whole.weights, again.weights, strict=True))
    return {
        "params_equal": difference <= 1e-6,
        "params_max_difference": difference,
        "lr_equal": whole.rates == again.rates,
        "optimizer_state_equal": whole.moments == again.moments,
        "rng_equal": whole.random == again.random,
        "rewards_equal": whole.rewards == again.rewards,
        "global_step": again.step,
    }


def _parts(case: Mapping[str, Any]) -> list[int]:
    """Optimizer steps of each part."""
    resumed = case["resume_for"]
    return [case["run"], *(resumed if isinstance(resumed, list) else [resumed])]


def _numbers(text: Any) -> list[int]:
    """`3 + resume 3` is two parts of three steps."""
    if isinstance(text, list):
        return list(text)
    return [int(number) for number in _NUMBER.findall(str(text))]


def _epochs(seen: Sequence[Sequence[str]], size: int) -> list[list[str]]:
    """The whole epochs among the groups in their order."""
    flat = [task for window in seen for task in window]
    return [flat[start : start + size] for start in range(0, len(flat) - size + 1, size)]


class _Run:
    """A training run that can be left and gone on with, each time by another trainer.

    Args:
        folder: of its checkpoints.
        rows: values of the tasks.
        settings: see `__init__`.
    """

    def __init__(self, folder: Path, *, rows: Sequence[Any], **settings: Any) -> None:
        self._folder = RunFolder(folder)
        self._folder.checkpoints.mkdir(parents=True)
        self._rows = [{"id": str(value), "value": value} for value in rows]
        self._settings = settings
        self.batch: int = settings.get("batch", 2)
        """Groups of an optimizer step."""
        self.step = 0
        self.seen: list[list[str]] = []
        """Tasks of each window, group after group."""
        self.rates: list[float] = []
        """Learning rates, step after step."""
        self.rewards: list[float] = []
        self.weights: list[float] = []
        self.moments: list[float] = []
        """What the optimizer keeps."""
        self.random: list[int] = []
        """State of torch's generator."""
        self.resumed_from: list[str] = []

    def go(self, steps: int) -> None:
        """Go on for so many optimizer steps and leave a checkpoint."""
        import torch

        checkpoint = self.newest if self.step else None
        if checkpoint is not None:
            self.resumed_from.append(checkpoint.name)
        trainer = self._trainer(self.step + steps)
        trainer.train(resume_from_checkpoint=checkpoint and str(checkpoint))
        self.step = trainer.state.global_step
        logged = [row for row in trainer.state.log_history if "step_time" in row]
        self.rates = [row["learning_rate"] for row in logged]
        self.rewards = [row["reward"] for row in logged if "reward" in row]
        self.weights = _flat(trainer.policy.state_dict())
        states = trainer.optimizer.state_dict()["state"]
        self.moments = [value for state in states.values() for value in _flat(state)]
        self.random = torch.get_rng_state().tolist()

    @property
    def newest(self) -> Path:
        """The checkpoint to go on from."""
        return self._folder.newest_checkpoint()

    def break_newer_checkpoint(self, name: str) -> None:
        """Leave a copy of the newest checkpoint that looks newer, with one file cut short."""
        broken = self.newest.with_name(f"checkpoint-{self.step + 100}")
        shutil.copytree(self.newest, broken)
        content = (broken / name).read_bytes()
        (broken / name).write_bytes(content[:40])

    def change(self, settings: Mapping[str, Any]) -> None:
        """Go on with other settings, or other tasks."""
        self._settings = {**self._settings, **settings}
        if "dataset" in settings:
            self._rows = [{"id": str(value), "value": value} for value in settings["dataset"]]

    def _trainer(self, until: int) -> Any:
        import torch
        from transformers import TrainerCallback, set_seed

        from agentgym.engines.scripted import CallableEngine
        from agentgym.rendering import renderer_for
        from agentgym.testing import byte_tokenizer
        from agentgym.trainer.callbacks import AgentCallback
        from agentgym.trainer.grpo import AgentGRPOTrainer

        run = self

        class Keep(AgentCallback):
            def on_window(self, args: Any, state: Any, control: Any, **window: Any) -> None:
                groups = {output.group_id: output.task_id for output in window["outputs"]}
                run.seen.append(list(groups.values()))

        class Leave(TrainerCallback):
            def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                if state.global_step == until:
                    control.should_save = control.should_training_stop = True

        torch.set_num_threads(1)
        set_seed(0)
        tokenizer = byte_tokenizer()
        learns = self._settings.get("learns", False)
        return AgentGRPOTrainer(
            _tiny_model(tokenizer),
            self._args(until),
            env=_Echo,
            engine=None if learns else CallableEngine(lambda call: [65 + call.sampling.seed % 26]),
            train_dataset=self._rows,
            renderer=renderer_for(tokenizer, stop_token_ids=range(128)),
            processing_class=tokenizer,
            callbacks=[Keep(), Leave()],
        )

    def _args(self, until: int) -> Any:
        from agentgym.trainer.config import AgentGRPOConfig

        settings, accumulation = self._settings, self._settings.get("accumulation", 1)
        size = settings.get("group_size", 2)
        return AgentGRPOConfig(
            output_dir=str(self._folder.checkpoints),
            use_cpu=True,
            max_steps=settings.get("planned", until),
            per_device_train_batch_size=self.batch * size // accumulation,
            gradient_accumulation_steps=accumulation,
            num_generations=size,
            num_iterations=settings.get("iterations", 1),
            max_completion_length=8,
            learning_rate=1e-2,
            lr_scheduler_type=settings.get("schedule", "constant"),
            warmup_steps=settings.get("warmup", 0),
            optim=settings.get("optim", "adamw_torch"),
            shuffle_dataset=settings.get("shuffle", True),
            seed=settings["seed"],
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )


def _tiny_model(tokenizer: Any) -> Any:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=1,
            num_key_value_heads=1,
            head_dim=16,
            intermediate_size=16,
            max_position_embeddings=128,
            initializer_range=0.3,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


def _flat(tensors: Mapping[str, Any]) -> list[float]:
    return [float(v) for name in sorted(tensors) for v in tensors[name].flatten().tolist()]


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


class _Echo(Env):
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


# --- a run twice


def _repeated(case: Mapping[str, Any]) -> dict[str, Any]:
    """The same requests again, in this process and under two other hash seeds."""
    given = {key: case[key] for key in dict.keys(case) if key != "python_hash_seeds"}
    first, second = played(given), played(given)
    others = [
        _in_process(given, hash_seed)
        for hash_seed in map(str, case.get("python_hash_seeds", [1, 2]))
    ]
    runs = [first, second, *others]
    return {
        "trajectories_equal": all(run["trajectories"] == first["trajectories"] for run in runs),
        "rewards_equal": all(run["rewards"] == first["rewards"] for run in runs),
        "members_differ": len({str(t) for t in first["trajectories"]}) > 1,
        "completion_orders": len({tuple(run["ended"]) for run in runs}),
    }


def played(case: Mapping[str, Any]) -> dict[str, Any]:
    """What all trajectories of some groups were, and the order in which they ended."""
    return asyncio.run(_play(case))


async def _play(case: Mapping[str, Any]) -> dict[str, Any]:
    count, size = case["n_rollouts"], min(case.get("group_size", 4), case["n_rollouts"])
    turns, how = case.get("turns", 2), case.get("fake_engine_latency", "random")
    latency = random.Random(os.urandom(8))  # another one in every run
    names = {f"r{n}" for n in range(count)}

    async def policy(call: Any) -> str:
        await asyncio.sleep(latency.random() * 0.02 if how == "random" else float(how))
        random.random()  # somebody else draws from the process's generator meanwhile
        assert names
        return f"{random.Random(call.sampling.seed).random():.9f}"

    ended: list[str] = []
    renderer = kit.CharRenderer()
    engine = kit.CallableEngine(
        policy, encode=renderer.encode, decode=renderer.decode, stop_token_id=kit.END
    )
    player = kit.player_for(
        engine,
        renderer,
        lambda: _Echo(turns),
        concurrency=case.get("concurrency", 256),
        on_output=lambda output: ended.append(output.request_id),
    )
    sampler = Sampler("case", _Echo().tasks(), seed=case.get("seed", 0), group_size=size)
    requests = sampler.groups(range(-(-count // size)))[:count]
    outputs = await collect(requests, player)
    return {
        "trajectories": [_plain(output) for output in outputs],
        "rewards": [output.reward for output in outputs],
        "ended": ended,
    }


def _plain(output: RolloutOutput) -> Any:
    """All of it but the clock."""
    data = json.loads(output.to_json())
    data.pop("timings")
    data["rollout_infos"].pop("tool_seconds")
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


# --- a long run


def _growth(case: Mapping[str, Any]) -> dict[str, Any]:
    """What is there after so many rollouts of one session, played window after window."""
    from agentgym.trainer.rollouts import Rollouts, Source

    marks = sorted(case["measure_after"])
    size, turns = case.get("group_size", 8), case.get("turns", 2)
    renderer = kit.CharRenderer()
    engine = kit.CallableEngine(
        lambda call: "x" * (1 + call.sampling.seed % 512),
        encode=renderer.encode,
        decode=renderer.decode,
        stop_token_id=kit.END,
    )
    fails = case.get("fail_every", 0)
    rollouts = Rollouts(
        Source(make=lambda: engine, push=lambda engine, loop: loop.run(engine.update_weights())),
        lambda engine: kit.player_for(engine, renderer, lambda: _Sometimes(turns, fails)),
    )
    sampler = Sampler("case", _Echo().tasks(), seed=0, group_size=size)
    rss: list[float] = []
    count = window = pending = 0
    with rollouts.session() as loop:
        while count < case["rollouts"]:
            requests = sampler.groups([window])[: case["rollouts"] - count]
            rollouts.sync()
            rollouts.finish(rollouts.begin(requests, temperature=1.0))
            rollouts.weights_changed()
            count, window = count + len(requests), window + 1
            if len(rss) < len(marks) and count >= marks[len(rss)]:
                rss.append(_resident_mb())
        pending = loop.run(_num_others())
        live = _num_live()
    return {
        "live_trajectory_objects_after": live,
        "pending_tasks_after": pending,
        "rss_growth_mb": rss[-1] - rss[0],
        "rollouts": count,
    }


class _Sometimes(_Echo):
    """Every so many episodes fail."""

    num_begun = 0

    def __init__(self, turns: int, fail_every: int) -> None:
        super().__init__(turns)
        self._fail_every = fail_every

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        _Sometimes.num_begun += 1
        if self._fail_every and _Sometimes.num_begun % self._fail_every == 0:
            raise RuntimeError("down")
        return super().reset(seed=seed, options=options)


async def _num_others() -> int:
    return len(asyncio.all_tasks()) - 1


def _num_live() -> int:
    gc.collect()
    return sum(type(thing) in (Trajectory, RolloutOutput) for thing in gc.get_objects())


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
