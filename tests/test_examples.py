"""What a newcomer types first works: the examples, and the commands and code in the documents."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
import warm_kit

from agentgym import envs
from agentgym.cli import COMMANDS
from agentgym.config import load
from agentgym.messages import Message, assistant, user
from agentgym.plugins import load_plugins
from agentgym.registry import REWARDS
from agentgym.trajectory import RolloutOutput, StopReason

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
NEW_ENV = EXAMPLES / "01_new_env.py"
CUSTOM = EXAMPLES / "04_custom_reward_and_loss.py"
_COMMAND = re.compile(r"(?:^#? *|&& )agentgym ((?:[^\n`\\]|\\\n)+)$", re.MULTILINE)


def commands_in(path: Path) -> list[list[str]]:
    """Arguments of each `agentgym` command line of a document or an example."""
    lines = _COMMAND.findall(path.read_text(encoding="utf-8"))
    return [shlex.split(line.replace("\\\n", " ")) for line in lines]


def all_commands() -> list[list[str]]:
    files = [*DOCUMENTS, *EXAMPLES.glob("*.py"), *EXAMPLES.glob("*.yaml")]
    return [command for file in files for command in commands_in(file)]


def blocks_in(path: Path, language: str) -> list[str]:
    """Fenced code of a document."""
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)


def run(*words: str | Path, cwd: Path) -> str:
    """Output of a Python program that must succeed."""
    done = warm_kit.run(*words, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def train(*arguments: str | Path, cwd: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Summary and metrics of `agentgym train`."""
    folder = cwd / "run"
    run("-m", "agentgym", "train", *arguments, "--run-dir", folder, cwd=ROOT)
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return json.loads((folder / "summary.json").read_text()), [json.loads(line) for line in lines]


@pytest.mark.parametrize("command", all_commands(), ids=" ".join)
def test_every_command_in_the_documents_is_accepted(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flags, values and files of a document must be those of the program."""
    monkeypatch.chdir(ROOT)
    name, *arguments = command
    if "--help" in arguments:
        return
    settings = load(COMMANDS.get(name).config, arguments)

    assert settings


def test_there_are_commands_in_the_documents() -> None:
    """Guards the test above against a pattern that finds nothing."""
    found = {" ".join(command) for command in all_commands()}

    assert "train --env calculator" in found
    assert "train --plugins examples/01_new_env.py --env clock" in found
    assert any("--loss-type reinforce" in command for command in found)


def test_the_readme_shows_the_example_that_is_tested() -> None:
    """A copy that differs would be the one that is read."""
    example = NEW_ENV.read_text(encoding="utf-8").split('"""\n\n', 1)[1]

    assert example in blocks_in(ROOT / "README.md", "python")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_within_the_repository_lead_somewhere(document: Path) -> None:
    """Readers follow them."""
    targets = re.findall(r"\]\(([^)#]+)\)", document.read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target]

    assert [target for target in local if not (ROOT / target).exists()] == []


def test_the_new_env_pays_for_the_tools_answer() -> None:
    """17 + 9 is 2 on its clock: the tool says so, and the score wants nothing else."""
    load_plugins([NEW_ENV])
    env = envs.make("clock")
    task = {"id": "17+9", "data": {"start": 17, "hours": 9}}
    env.reset(options={"task": task})
    [result], *_ = env.step(assistant("", ("calculator", {"expression": "17+9"})))
    _, reward, terminated, _, _ = env.step(f"Answer: {result.content}")
    env.reset(options={"task": task})
    _, naive_reward, *_ = env.step("Answer: 26")
    env.close()

    assert result.content == "2"
    assert (reward, terminated) == (1.0, True)
    assert naive_reward == 0.0


def test_the_new_env_evaluates_on_tasks_it_does_not_train_on() -> None:
    """Otherwise its reward would say nothing."""
    load_plugins([NEW_ENV])
    env = envs.make("clock")
    train_ids, eval_ids = ({task.id for task in env.tasks(split)} for split in ("train", "eval"))
    env.close()

    assert len(train_ids) > len(eval_ids) > 100
    assert train_ids.isdisjoint(eval_ids)


def test_the_custom_reward_wants_one_number() -> None:
    """An episode that was cut says nothing about it."""
    load_plugins([CUSTOM])
    one_number = REWARDS.get("one_number")

    def judged(*messages: Message) -> float | None:
        score: float | None = one_number(
            RolloutOutput(
                request_id="r",
                group_id="g",
                task_id="t",
                env="e",
                seed=0,
                messages=messages,
                segments=(),
                stop_reason=StopReason.FINAL_ANSWER,
            )
        )
        return score

    assert judged(assistant("Answer: -4.5")) == 1.0
    assert judged(assistant("4 or 5")) == 0.0
    assert judged(assistant("?"), user("Go on.")) is None


def test_the_custom_estimator_only_sees_order() -> None:
    """Shares of the group beaten, whatever the distance; groups stand apart."""
    from agentgym.trainer.advantages import compute_advantages

    load_plugins([CUSTOM])
    rewards = torch.tensor([0.0, 0.1, 9.0, 0.5, 0.7])
    advantages = compute_advantages(rewards, [0, 0, 0, 1, 1], estimator="ranks")

    expected = torch.tensor([-2 / 3, 0.0, 2 / 3, -0.5, 0.5])
    torch.testing.assert_close(advantages, expected)


def test_the_custom_loss_has_the_gradient_of_dapo_on_fresh_samples() -> None:
    """Before the first update the ratio is 1, where both are the policy gradient."""
    from agentgym.trainer.losses import FlatTokens, LossSettings, Normalizer, policy_loss

    load_plugins([CUSTOM])
    gradients = []
    for loss_type in ("reinforce", "dapo"):
        logprobs = torch.tensor([-0.1, -2.0, -0.7], requires_grad=True)
        tokens = FlatTokens(
            logprobs=logprobs,
            old_logprobs=logprobs.detach(),
            advantages=torch.tensor([1.0, 1.0, -0.5]),
            sequence_ids=torch.tensor([0, 0, 1]),
        )
        settings = LossSettings(loss_type=loss_type)
        policy_loss(tokens, settings, Normalizer(num_tokens=5, num_sequences=2)).loss.backward()
        gradients.append(logprobs.grad)

    torch.testing.assert_close(gradients[0], gradients[1])


@pytest.mark.slow
def test_the_policy_learns_the_new_env(tmp_path: Path) -> None:
    """Twenty lines of plugin are enough to train on."""
    arguments = ["--plugins", NEW_ENV, "--env", "clock", "--steps", "8", "--eval-tasks", "60"]
    summary, metrics = train(*arguments, cwd=tmp_path)

    assert [row["step"] for row in metrics] == list(range(1, 9))
    assert summary["eval_reward_before"] < 0.4
    assert summary["eval_reward_after"] > 0.6


@pytest.mark.slow
def test_the_custom_parts_train(tmp_path: Path) -> None:
    """The command of the example's docstring, shortened."""
    [command] = commands_in(CUSTOM)
    shortened = ("--steps", "2", "--eval-tasks", "4", "--num-tasks", "2")
    _, metrics = train(*command[1:], *shortened, cwd=tmp_path)

    assert len(metrics) == 2
    assert all(0 <= row["rewards/one_number/mean"] <= 1 for row in metrics)


@pytest.mark.slow
def test_the_run_file_trains_and_is_saved_resolved(tmp_path: Path) -> None:
    """What is saved in the run folder is a run file again."""
    file = EXAMPLES / "train_calculator.yaml"
    train(file, "--steps", "1", "--eval-tasks", "0", "--num-tasks", "2", cwd=tmp_path)
    saved = load(COMMANDS.get("train").config, [str(tmp_path / "run/config.yaml")])
    given = load(COMMANDS.get("train").config, [str(file)])

    assert saved.model_dump()["trainer_args"] == given.model_dump()["trainer_args"]
    assert saved.model_dump()["env_args"] == given.model_dump()["env_args"]


@pytest.mark.slow
def test_the_python_api_trains(tmp_path: Path) -> None:
    """The example prints the rewards before and after."""
    script = EXAMPLES / "02_python_api.py"
    output = run(script, "--steps", "2", "--num-eval-tasks", "8", cwd=tmp_path)

    assert re.search(r"reward on held-out tasks: \d\.\d+ -> \d\.\d+", output)


@pytest.mark.slow
def test_the_python_code_of_the_readme_runs(tmp_path: Path) -> None:
    """Every block is pasted and run as it is, but for the number of steps."""
    code = (
        "\n".join(blocks_in(ROOT / "README.md", "python"))
        .replace("max_steps=40", "max_steps=1")
        .replace("=100", "=4")
    )
    output = run("-c", code, cwd=tmp_path)

    assert "max_steps=1" in code
    assert 0 <= float(output.splitlines()[-1]) <= 1


@pytest.mark.slow
def test_the_offline_rollout_shows_every_token(tmp_path: Path) -> None:
    """A trajectory starts with the rendered prompt and goes on with what was sampled."""
    output = run(EXAMPLES / "03_offline_rollout.py", cwd=tmp_path)
    lines = output.splitlines()
    starts = [i for i, line in enumerate(lines) if ": reward " in line]

    assert len(starts) == 4
    assert all(lines[i + 1].split()[0] == "template" for i in starts)
    assert all(lines[i + 2].split()[0] == "sampled" for i in starts)


def test_each_scheduler_makes_something_else_of_the_same_mistake(tmp_path: Path) -> None:
    """The hint goes on the message, asks anew, or the tool's result goes on it: none is trained."""
    output = run(EXAMPLES / "05_schedulers.py", cwd=tmp_path)
    lines = [line.split(None, 2) for line in output.splitlines() if line.startswith("  ")]
    trained = [line for line in lines if line[2].startswith("trained")]

    assert output.count("final_answer, reward") == 4
    assert {line[1] for line in trained} == {"sampled"}
    assert len(trained) == 8
    assert [line[1] for line in lines].count("injected") == 2
    assert "turns left" in output


@pytest.mark.slow
def test_programs_that_nobody_trusts_earn_what_their_answers_are_worth(tmp_path: Path) -> None:
    """Hacks and endless loops nothing; the honest one is paid by the grader and by the env."""
    output = run(EXAMPLES / "07_code_execution.py", cwd=tmp_path)
    worth = dict(re.findall(r"^([\w ]+): (\d\.\d+)", output, re.MULTILINE))

    assert worth.pop("honest") == "1.00"
    assert worth.pop("half right") == "0.50"
    assert worth.pop("reward") == "1.0"
    assert set(worth.values()) == {"0.00"}
    assert len(worth) == 4
    assert "sorted: [1, 2, 3]" in output


def test_a_verdict_is_json_and_only_the_thought_is_trained(tmp_path: Path) -> None:
    """A policy that has never seen JSON gives nothing else where it is asked for it."""
    output = run(EXAMPLES / "08_structured_outputs.py", cwd=tmp_path)
    said = re.findall(r"^\d +(\w+)  '(.*?)(?:<.*>)?'$", output, re.MULTILINE)

    assert [mask for mask, _ in said] == ["trained", "form"] * 3
    assert all(set(json.loads(text)) == {"sure", "digit"} for mask, text in said if mask == "form")
