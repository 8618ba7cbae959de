"""Settings of `agentgym train`.

Only what is changed often has a flag of its own; `trainer_args` reaches everything else. A setting
that depends on the policy is `None` until `resolved` chooses it, so that the saved config is whole
and says what was run.
"""

import itertools
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from agentgym.commands.engine_section import OF_ENDPOINTS, EngineSection
from agentgym.commands.sections import EnvSection, ModelSection, PluginSection, SandboxSection
from agentgym.config import Config
from agentgym.errors import ConfigError

RUNS = Path("runs")
TINY: dict[str, Any] = {"steps": 60, "learning_rate": 4e-4, "eval_tasks": 200}
"""Chosen for the embedded policy: it learns the calculator in minutes on two cores."""
PRETRAINED: dict[str, Any] = {"steps": 200, "learning_rate": 1e-6, "eval_tasks": 64}
"""Chosen for any other model."""


class LearningSection(Config):
    """How it learns"""

    steps: int | None = Field(None, ge=1)
    """Optimizer steps. (default: 60, with --model 200)"""
    num_tasks: int | None = Field(None, ge=1)
    """Tasks per step, over all processes. (default: 8)"""
    group_size: int = Field(8, ge=2)
    """Trajectories per task, compared with each other."""
    learning_rate: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Rate of AdamW, constant over the run. (default: 4e-4, with --model 1e-6)"""
    temperature: float = Field(1.0, gt=0, allow_inf_nan=False)
    """Of sampling, in training and in held-out evaluation."""
    beta: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Weight of the KL divergence to the initial policy."""
    loss_type: str = "dapo"
    """grpo, bnpo, dr_grpo, dapo, or one from a plugin."""
    advantage_estimator: str = "grpo"
    """grpo, rloo, reinforce_plus_plus, or one from a plugin."""
    scale_rewards: Literal["group", "batch", "none"] = "none"
    """Whose standard deviation advantages are divided by."""
    curriculum: bool = False
    """Draw the parts of --env mixture by measured success: most often what is half mastered."""
    trainer: str = "grpo"
    """Trainer class: grpo, or one from a plugin."""
    trainer_args: dict[str, Any] = {}
    """Other settings of AgentGRPOConfig, such as '{"num_iterations": 2}'."""


class AheadSection(Config):
    """How engine and training keep step"""

    staleness: int = Field(0, ge=0)
    """Windows that are played while one is trained on; 0 = play, then train. Above 0 the sampled
    tokens are up to so many windows of updates old."""
    probe_every: int = Field(50, ge=0)
    """Updates of an engine with weights of its own from one comparison of its log-probabilities
    with the trainer's to the next, the first one included; 0 = never."""


class EvaluationSection(Config):
    """Held-out tasks before and after"""

    eval_tasks: int | None = Field(None, ge=0)
    """How many; 0 skips it. (default: 200, with --model 64)"""


class RunSection(Config):
    """Where the run is kept"""

    name: str | None = Field(None, pattern=r"^[^/\\]+$")
    """The folder is runs/NAME. (default: the env's name and a number)"""
    run_dir: Path | None = None
    """Folder of the run, in place of runs/NAME."""
    save_steps: int | None = Field(None, ge=1)
    """Optimizer steps between checkpoints. (default: a quarter of the run)"""
    resume: bool = False
    """Go on from the newest checkpoint; settings not given are the run's own."""


class TrainConfig(
    EnvSection,
    ModelSection,
    LearningSection,
    EngineSection,
    AheadSection,
    EvaluationSection,
    RunSection,
    SandboxSection,
    PluginSection,
):
    """Train a policy on an environment by reinforcement learning.

    Example: agentgym train --env calculator
    """

    rivals: ClassVar[tuple[str, ...]] = ("name", "run_dir")
    elsewhere: ClassVar[Mapping[str, str]] = {
        "--policy": f"what is trained is --model; {OF_ENDPOINTS}"
    }
    without_flag: ClassVar[str | None] = "trainer_args"

    @model_validator(mode="after")
    def _one_folder(self) -> Self:
        if self.name is not None and self.run_dir is not None:
            raise ValueError("--name and --run-dir both say where the run is kept: give one")
        if self.resume and self.name is None and self.run_dir is None:
            raise ValueError("--resume needs the run to go on with: give its --name or --run-dir")
        return self

    @classmethod
    def beneath(cls, given: Mapping[str, Any]) -> list[Path]:
        """A run that goes on starts from its own settings."""
        folder = _folder_of(given.get("name"), given.get("run_dir"))
        if given.get("resume") is not True or folder is None:
            return []
        if not (folder / "config.yaml").is_file():
            raise ConfigError(f"--resume: there is no run to go on with in {str(folder)!r}")
        return [folder / "config.yaml"]

    @property
    def folder(self) -> Path:
        """Of the run; one that is free now if none was given."""
        return self.given_folder or next(free_folders(self.env))

    @property
    def given_folder(self) -> Path | None:
        """Of the run, if it was given."""
        return _folder_of(self.name, self.run_dir)

    @property
    def title(self) -> str:
        """What people are shown of a run."""
        policy = "embedded tiny policy" if self.model is None else Path(self.model).name
        return f"{self.env} · {policy} · seed {self.seed}"

    @property
    def _steps_per_window(self) -> int:
        """Optimizer steps fed by what is played at once; checkpoints lie between windows."""
        names = ("num_iterations", "steps_per_generation", "gradient_accumulation_steps")
        numbers = [self.trainer_args.get(name, 1) for name in names]
        if not all(isinstance(number, int) and number > 0 for number in numbers):
            return 1
        iterations, steps, accumulation = map(int, numbers)
        return iterations * max(1, steps // accumulation)

    def resolved(self) -> Self:
        """With everything chosen that was left open but the folder.

        A saved one starts the same run again.
        """
        chosen = TINY if self.model is None else PRETRAINED
        filled = {name: value for name, value in chosen.items() if self.model_dump()[name] is None}
        steps = self.steps or chosen["steps"]
        if self.save_steps is None:
            window = self._steps_per_window
            filled["save_steps"] = max(1, steps // 4 // window) * window
        if self.template_date is None:
            filled["template_date"] = date.today()
        filled["engine"] = self.engine_name
        if self.engine_name == "vllm-server":
            filled["server_url"] = self.server_urls
        return self.model_copy(update={**filled, "resume": False})


def _folder_of(name: str | None, run_dir: Path | str | None) -> Path | None:
    if run_dir is not None:
        return Path(run_dir)
    return None if name is None else RUNS / name


def free_folders(env: str) -> Iterator[Path]:
    """Folders without end for runs whose name was left open; those that are there are left out."""
    base = env.rpartition("/")[2].lower()
    folders = (RUNS / f"{base}-{number}" for number in itertools.count(1))
    return (folder for folder in folders if not folder.exists())
