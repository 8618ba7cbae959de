"""Whatever is wrong with what was typed: one line, exit code 2, nothing left on disk."""

from pathlib import Path

import pytest

from agentgym.cli import main

CASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "unknown command": ("trian", ("'trian'", "did you mean 'train'")),
    "unknown flag": ("train --lerning-rate 1", ("--lerning-rate", "--learning-rate")),
    "setting without a flag": (
        "train --rollout-correction token_mask",
        ("'--rollout-correction'", "--trainer-args '{\"rollout_correction\": ...}'"),
    ),
    "folder as settings": ("{command} full", ("'full' is a folder", "--resume --run-dir full")),
    "flag of vLLM's": (
        "serve --tensor-parallel-size 2",
        ("'--tensor-parallel-size'; arguments of vLLM's server come after `--`",),
    ),
    "unknown env": ("{command} --env calculatr", ("'calculatr'", "'calculator'")),
    "unknown key": ("{command} run.yaml", ("run.yaml", "'evn'", "'env'")),
    "no such file": ("{command} nope.yaml", ("nope.yaml", "No such file")),
    "bad value": ("train --group-size 1", ("--group-size 1", "greater than or equal to 2")),
    "no turns": ("{command} --max-turns 0", ("--max-turns 0",)),
    "no group": ("{command} --group-size 0", ("--group-size 0",)),
    "no trajectories": ("rollout --n 0", ("--n 0",)),
    "temperature that is no number": ("{command} --temperature nan", ("--temperature nan",)),
    "temperature below zero": ("{command} --temperature -1", ("--temperature -1",)),
    "temperature without end": ("{command} --temperature inf", ("--temperature inf", "finite")),
    "rate that is no number": ("train --learning-rate nan", ("--learning-rate nan",)),
    "rate without end": ("train --learning-rate inf", ("--learning-rate inf", "finite")),
    "env arguments": ("{command} --env-args {{levels:~[9]}}", ("levels", "[9]")),
    "weight that is no number": ("{command} --reward-weights {{correct:~.nan}}", ("correct=nan",)),
    "weight without end": ("{command} --reward-weights {{correct:~-.inf}}", ("correct=-inf",)),
    "more at once than fits": ("{command} --concurrency 99999999999999999999", ("4096",)),
    "model without a name": ("{command} --model=", ("--model", "at least 1 character")),
    "unknown reward": ("{command} --reward-weights {{corect:~1}}", ("'corect'", "correct")),
    "no such model": ("{command} --model ./nope", ("'./nope'", "does not exist")),
    "broken plugin": ("{command} --plugins broken.py", ("broken.py:1", "SyntaxError")),
    "failing plugin": ("{command} --plugins failing.py", ("failing.py:2", "ZeroDivisionError")),
    "no such plugin": ("{command} --plugins nope.py", ("nope.py", "no such")),
    "unknown dialect": ("{command} --dialect herms", ("'herms'", "'hermes'")),
    "two folders": ("train --name a --run-dir b", ("--name", "--run-dir")),
    "resume of nothing": ("train --resume --name nope", ("nope", "no run")),
    "resume without a name": ("train --resume", ("--resume", "--name")),
    "folder in use": ("train --run-dir full", ("'full'", "not empty", "--resume")),
    "folder below a file": ("train --run-dir run.yaml/x", ("run.yaml", "cannot be made")),
    "template that rewrites history": (
        "{command} --model rewriting --on-history-rewrite refuse",
        ("rewriting", "rewrites"),
    ),
    "no chat template": ("{command} --model bare", ("bare", "no chat template")),
    "groups that are not whole": ("rollout --n 3 --group-size 2", ("--n 3", "--group-size 2")),
    "unknown policy": ("rollout --policy orcale", ("'orcale'", "oracle")),
    "no such script": ("rollout --policy scripted:nope", ("'nope'", "No such file")),
    "script of another kind": ("rollout --policy scripted:run.yaml", ("run.yaml", "list")),
    "no folder for the output": ("rollout --out nope/out.jsonl", ("'nope'", "does not exist")),
}
NEEDS_TRAINER: dict[str, tuple[str, tuple[str, ...]]] = {
    "group size that does not divide": (
        "train --group-size 3 --trainer-args {{per_device_train_batch_size:~8}}",
        ("3", "8", "divide"),
    ),
    "unknown trainer argument": (
        "train --trainer-args {{warmpu_ratio:~0.1}}",
        ("'warmpu_ratio'",),
    ),
    "argument with a flag": ("train --trainer-args {{max_steps:~3}}", ("max_steps", "--steps")),
    "argument of another type": (
        "train --trainer-args {{epsilon:~high}}",
        ("epsilon='high'", "number"),
    ),
    "no total tokens": (
        "train --trainer-args {{max_total_tokens:~-1}}",
        ("max_total_tokens=-1", "at least 2"),
    ),
    "no turn tokens": ("train --trainer-args {{max_turn_tokens:~0}}", ("max_turn_tokens=0",)),
    "no accumulation": (
        "train --trainer-args {{gradient_accumulation_steps:~0}}",
        ("gradient_accumulation_steps=0", "at least 1"),
    ),
    "clipping that is no number": ("train --trainer-args {{epsilon:~.nan}}", ("epsilon=nan",)),
    "unknown loss": ("train --loss-type gpro", ("'gpro'", "'grpo'")),
    "unknown estimator": ("train --advantage-estimator gpro", ("'gpro'", "'grpo'")),
    "tracker that is not there": (
        "train --trainer-args {{report_to:~dvclive}}",
        ("report_to=['dvclive']", "pip install dvclive"),
    ),
    "unknown trainer": ("train --trainer gpro", ("'gpro'", "'grpo'")),
    "unknown reward function": ("train --rewards nope", ("'nope'",)),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with one of every kind of trouble."""
    from agentgym.testing import CHATML, byte_tokenizer

    (tmp_path / "run.yaml").write_text("evn: calculator\n")
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "failing.py").write_text("x = 0\n1 / x\n")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "config.yaml").write_text("")
    last_only = CHATML.replace("in messages", "in messages[-1:]")
    byte_tokenizer(template=last_only).save_pretrained(tmp_path / "rewriting")
    bare = byte_tokenizer()
    bare.chat_template = None
    bare.save_pretrained(tmp_path / "bare")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lines(cases: dict[str, tuple[str, tuple[str, ...]]]) -> list[object]:
    """Each case for `train` and `rollout`, where it stands for both."""
    return [
        pytest.param(line.format(command=command), words, id=f"{name}: {command}")
        for name, (line, words) in cases.items()
        for command in (("train", "rollout") if "{command}" in line else (line.split()[0],))
    ]


def files_in(folder: Path) -> list[Path]:
    """Without what Python itself writes when it imports a plugin."""
    return sorted(path for path in folder.rglob("*") if "__pycache__" not in path.parts)


def check(line: str, words: tuple[str, ...], folder: Path, capsys) -> None:
    before = files_in(folder)

    code = main([word.replace("~", " ") for word in line.split()])

    captured = capsys.readouterr()
    assert code == 2, captured
    assert captured.err.count("\n") == 1, captured.err
    assert all(word.lower() in captured.err.lower() for word in words), captured.err
    assert files_in(folder) == before


@pytest.mark.parametrize(("line", "words"), lines(CASES))
def test_bad_input_is_refused_before_anything_is_loaded(line, words, folder, capsys):
    """The reader of the line can mend it without knowing the code."""
    check(line, words, folder, capsys)


@pytest.mark.slow
@pytest.mark.parametrize(("line", "words"), lines(NEEDS_TRAINER))
def test_bad_trainer_settings_are_refused_before_the_model_is_loaded(
    line, words, folder, capsys, monkeypatch
):
    """A large model takes minutes to load."""
    from transformers import PreTrainedModel

    def load(*args: object, **kwargs: object) -> None:
        raise AssertionError("the model was loaded")

    monkeypatch.setattr(PreTrainedModel, "from_pretrained", load)
    check(line, words, folder, capsys)
