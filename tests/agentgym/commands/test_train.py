"""`agentgym train`: what its settings become, and what a run leaves."""

import json
from pathlib import Path

import pytest

from agentgym.cli import main
from agentgym.commands.recipes import OWN_FIELDS, trainer_settings
from agentgym.commands.train_config import TrainConfig
from agentgym.config import load, to_yaml
from agentgym.errors import ConfigError
from agentgym.trajectory import read_jsonl

PLUGIN = """\
from agentgym.registry import ADVANTAGES, LOSSES, REWARDS, SCHEDULERS, TRAINERS
from agentgym.rollout import GymScheduler
from agentgym.trainer.advantages import grpo
from agentgym.trainer.grpo import AgentGRPOTrainer
from agentgym.trainer.losses import dapo
from agentgym.trajectory import StopReason

class TwoTurns(GymScheduler):
    def check_finished(self, trajectory, turn):
        return StopReason.MAX_TURNS if len(trajectory.turns) == 2 else None

class Mine(AgentGRPOTrainer):
    pass

SCHEDULERS.register("two_turns", TwoTurns)
REWARDS.register("short", lambda output: -0.01 * sum(output.loss_mask))
ADVANTAGES.register("mine", grpo)
LOSSES.register("mine", dapo)
TRAINERS.register("mine", Mine)
"""


def train_config(*argv: str) -> TrainConfig:
    return load(TrainConfig, argv).resolved()


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_defaults_suit_the_policy_and_are_all_chosen_when_resolved():
    """A saved config must say what was run, even when defaults change later."""
    tiny, other = train_config(), train_config("--model", "some/model")

    assert (tiny.steps, tiny.learning_rate, tiny.eval_tasks, tiny.save_steps) == (60, 4e-4, 200, 15)
    assert (other.steps, other.learning_rate, other.eval_tasks) == (200, 1e-6, 64)
    assert train_config("--steps", "3", "--learning-rate", "1").learning_rate == 1


def test_checkpoints_lie_between_windows():
    """A window is not part of a checkpoint, so one inside it could not be gone on from exactly."""
    assert train_config("--trainer-args", "{num_iterations: 4}").save_steps == 12
    assert train_config("--steps", "3", "--trainer-args", "{num_iterations: 2}").save_steps == 2
    batches = "{steps_per_generation: 6, gradient_accumulation_steps: 2, num_iterations: 2}"
    assert train_config("--trainer-args", batches).save_steps == 12


def test_names_of_runs_are_free_ones(tmp_path: Path):
    """Typing the same line twice gives two runs."""
    assert train_config().folder == Path("runs/calculator-1")

    (tmp_path / "runs" / "calculator-1").mkdir(parents=True)
    assert train_config("--env", "agentgym/Calculator-v0").folder == Path("runs/calculator-v0-1")
    assert train_config().folder == Path("runs/calculator-2")
    assert train_config("--name", "x").folder == Path("runs/x")
    assert train_config("--run-dir", "elsewhere").folder == Path("elsewhere")


def test_trainer_settings_follow_the_flags_and_arguments_reach_the_rest(tmp_path: Path):
    """The recipe of the README, and the way out for everything without a flag."""
    settings = train_config("--trainer-args", "{num_iterations: 2, epsilon: 0.1}", "--seed", "4")

    values = trainer_settings(settings, tmp_path, 1)
    assert values["per_device_train_batch_size"] == 64
    assert (values["num_generations"], values["max_steps"], values["seed"]) == (8, 60, 4)
    assert (values["epsilon"], values["epsilon_high"], values["num_iterations"]) == (0.1, 0.28, 2)
    assert values["scale_rewards"] == "none"
    assert OWN_FIELDS.keys() <= values.keys()


@pytest.mark.parametrize("name", sorted(OWN_FIELDS))
def test_a_setting_has_one_name(name: str, tmp_path: Path):
    """With two, one of them would be without effect."""
    settings = train_config("--trainer-args", json.dumps({name: 1}))

    with pytest.raises(ConfigError, match=f"{name}.*--{OWN_FIELDS[name].replace('_', '-')}"):
        trainer_settings(settings, tmp_path, 1)


def test_tasks_are_shared_out_evenly_or_not_at_all(tmp_path: Path):
    """A rank with fewer groups would wait for ever."""
    assert trainer_settings(train_config(), tmp_path, 4)["per_device_train_batch_size"] == 16
    with pytest.raises(ConfigError, match=r"--num-tasks 8 .* 3 processes"):
        trainer_settings(train_config(), tmp_path, 3)


def test_how_much_is_played_is_said_once(tmp_path: Path):
    """Batch sizes are another way to give --num-tasks."""
    batch = ("--trainer-args", "{per_device_train_batch_size: 16}")

    assert trainer_settings(train_config(*batch), tmp_path, 1)["per_device_train_batch_size"] == 16
    with pytest.raises(ConfigError, match="--num-tasks 8"):
        trainer_settings(train_config(*batch, "--num-tasks", "8"), tmp_path, 1)


def test_a_run_that_goes_on_has_its_own_settings(tmp_path: Path):
    """`--resume --name x` is all one has to remember."""
    (tmp_path / "runs" / "x").mkdir(parents=True)
    (tmp_path / "runs" / "x" / "config.yaml").write_text("env: other\nsteps: 7\nname: x\n")

    resumed = load(TrainConfig, ["--resume", "--name", "x", "--seed", "5"])
    assert (resumed.env, resumed.steps, resumed.seed, resumed.resume) == ("other", 7, 5, True)


@pytest.mark.parametrize("where", [(), ("--name", "my run")])
def test_a_folder_that_is_given_replaces_the_name_beneath_it(where: tuple[str, ...]):
    """A saved config has the run's name, and the line that goes on with it names the folder."""
    saved = train_config(*where)
    saved = saved.model_copy(update={"name": saved.folder.name})
    saved.folder.mkdir(parents=True)
    (saved.folder / "config.yaml").write_text(to_yaml(saved))

    resumed = load(TrainConfig, ["--resume", "--run-dir", str(saved.folder)])
    assert resumed.resolved().folder == saved.folder
    assert load(TrainConfig, ["--resume", "--name", saved.folder.name]).folder == saved.folder
    (saved.folder / "elsewhere.yaml").write_text("run_dir: elsewhere\n")
    file = str(saved.folder / "elsewhere.yaml")
    assert load(TrainConfig, [file]).folder == Path("elsewhere")
    assert load(TrainConfig, [file, "--name", "x"]).folder == Path("runs/x")


@pytest.mark.slow
def test_a_run_leaves_a_folder_that_tells_and_repeats_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """The same settings give the same run; everything in it can be read."""
    size = ("--steps", "2", "--eval-tasks", "6", "--num-tasks", "4")
    assert main(["train", *size, "--name", "one"]) == 0
    out = capsys.readouterr().out
    assert main(["train", "runs/one/config.yaml", "--name", "two"]) == 0

    one, two = (tmp_path / "runs" / name for name in ("one", "two"))
    rows, again = (
        [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        for run in (one, two)
    )
    summary = json.loads((one / "summary.json").read_text())
    for row, same in zip(rows, again, strict=True):
        # Two threads may add up a gradient in another order.
        assert row["loss"] == pytest.approx(same["loss"], rel=1e-5)
        assert row["grad_norm"] == pytest.approx(same["grad_norm"], rel=1e-5)
        assert (row["step"], row["reward"]) == (same["step"], same["reward"])
    assert [row["step"] for row in rows] == [1, 2]
    assert (summary["num_steps"], summary["seed"], summary["finished"]) == (2, 0, True)
    assert 0 < summary["eval_reward_before"] < 0.6
    assert {"eval_reward_after", "eval_greedy_after", "train_seconds"} <= summary.keys()
    assert (one / "reward.png").read_bytes().startswith(b"\x89PNG")
    played = {p.name: len(list(read_jsonl(p))) for p in (one / "trajectories").iterdir()}
    sizes = {f"eval-{when}-{how}.jsonl": 6 for when in ("before", "after") for how in HOW}
    assert played == {"step-000001.jsonl": 32, "step-000002.jsonl": 32, **sizes}
    assert all(word in out for word in ("step 2/2", "reward 0.", "ETA", "before", "runs/one"))
    checkpoint = one / "checkpoints" / "checkpoint-2"
    assert main(["rollout", "--model", str(checkpoint), "--n", "1"]) == 0


HOW = ("reward", "greedy")


@pytest.mark.slow
def test_everything_a_plugin_can_bring_reaches_the_run(tmp_path: Path):
    """One file, named on the command line."""
    (tmp_path / "mine.py").write_text(PLUGIN)
    flags = "--scheduler two_turns --rewards short --plugins mine.py"
    learning = "--loss-type mine --advantage-estimator mine --trainer mine"
    run = f"train --steps 1 --eval-tasks 0 --name plugged {flags} {learning}"

    assert main(run.split()) == 0
    outputs = list(read_jsonl(tmp_path / "runs/plugged/trajectories/step-000001.jsonl"))
    assert {output.num_turns for output in outputs} == {1, 2}
    assert {tuple(output.rewards) for output in outputs} == {("correct", "format", "short")}
    assert all(output.rewards["short"] == -0.01 * sum(output.loss_mask) for output in outputs)
    rollout = f"rollout --policy oracle --n 3 --out played.jsonl --show 0 {flags}"
    assert main(rollout.split()) == 0
    assert {output.num_turns for output in read_jsonl(tmp_path / "played.jsonl")} == {2}


@pytest.mark.slow
def test_a_run_without_a_gradient_says_so(capsys: pytest.CaptureFixture[str]):
    """Rewards of 0 throughout are no bug of the trainer's, and nobody should have to guess."""
    assert main(["train", "--env", "lookup", "--steps", "1", "--eval-tasks", "0"]) == 0

    assert "nothing was learned" in capsys.readouterr().out
