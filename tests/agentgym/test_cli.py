"""The command line as people use it, in this process wherever a second one adds nothing."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentgym.cli import COMMANDS, main
from agentgym.commands.policies import read_script
from agentgym.config import flag_of
from agentgym.errors import ConfigError
from agentgym.trajectory import read_jsonl

SCRIPT = """\
- |-
  <tool_call>
  {"name": "calculator", "arguments": {"expression": "1+"}}
  </tool_call>
- "Answer: 3"
"""
PLUGIN = """\
from agentgym.envs import Task, TaskSet, ToolEnv, register

class Echo(ToolEnv):
    "Says it back."
    def tasks(self, split="train"):
        return TaskSet.from_rows([{"id": "only", "word": "hello"}])
    def prompt(self, task):
        return task["word"]
    def score(self, episode):
        return {"same": float(episode.answer == episode.task["word"])}

register("Echo-v0", Echo)
"""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]):
    """Runs a command line; gives exit code, output and errors."""

    def run_command(*argv: object) -> tuple[int, str, str]:
        code = main([str(word) for word in argv])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run_command


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plugins") / "echo_plugin.py"
    path.write_text(PLUGIN)
    return path


def refused(outcome: tuple[int, str, str], *words: str) -> None:
    """The contract of every refusal: exit code 2, nothing printed but one line that says why."""
    code, out, err = outcome

    assert (code, out) == (2, "")
    assert err.startswith("agentgym: ")
    assert err.count("\n") == 1
    assert all(word in err for word in words), err


def test_help_names_every_command(run):
    """The first thing that is typed."""
    code, out, _ = run("--help")

    said = {name: COMMANDS.get(name).config.__doc__ or "" for name in COMMANDS.names()}
    assert code == 0
    assert {line for line in out.splitlines() if line.startswith("  ")} == {
        f"  {name:<9} {text.splitlines()[0]}" for name, text in said.items()
    }
    assert run() == (0, out, "")


@pytest.mark.parametrize("name", COMMANDS.names())
def test_every_setting_has_help(name: str, capsys: pytest.CaptureFixture[str]):
    """A flag without a docstring would be a riddle."""
    with pytest.raises(SystemExit) as stop:
        main([name, "--help"])

    out = capsys.readouterr().out
    config = COMMANDS.get(name).config
    fields = config.model_fields
    assert stop.value.code == 0
    assert [field for field, info in fields.items() if not info.description] == []
    words = (*config.arguments, config.passed_on or "")
    assert all(typed_as(field, words) in out for field in fields)


def typed_as(field: str, arguments: tuple[str, ...]) -> str:
    return field.upper() if field in arguments else flag_of(field)


def test_the_overview_loads_no_command():
    """It comes at once."""
    code = (
        "import sys; from agentgym.cli import main; main(['--help'])\n"
        "sys.exit(str({'numpy', 'gymnasium', 'aiohttp'} & set(sys.modules) or ''))"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert process.stderr.strip() == ""


def test_lists_and_help_load_no_torch():
    """They are typed often; a second's wait each time is too much."""
    code = (
        "import sys; from agentgym.cli import main\n"
        "for line in (['--help'], ['--version'], ['envs'], ['tools', '--json']): main(line)\n"
        "heavy = {'torch', 'transformers', 'trl', 'matplotlib', 'datasets'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert process.returncode == 0, process.stderr
    assert "calculator" in process.stdout


@pytest.mark.parametrize(
    "line",
    [
        "envs --names",
        "tools --json",
        "train --help",
        pytest.param("rollout --policy oracle --n 2", marks=pytest.mark.slow),
    ],
)
def test_a_reader_that_is_gone_ends_a_command_quietly(line: str):
    """`| head` has read enough."""
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.run(
        [sys.executable, "-m", "agentgym", *line.split()],
        env={**os.environ, "PYTHONUNBUFFERED": ""},
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writing)

    assert (process.returncode, process.stderr) == (1, "")


def test_names_are_bare_and_one_per_line(run):
    """They are for scripts."""
    assert "calculator" in run("envs", "--names")[1].splitlines()
    assert "calculator" in run("tools", "--names")[1].splitlines()


def test_tables_say_what_an_env_pays_and_takes(run):
    """Enough to write --env-args and --reward-weights without reading code."""
    _, out, _ = run("envs")

    assert all(word in out for word in ("calculator v0", "correct x0.9", "levels=(1, 2, 3)"))


def test_tools_are_listed_by_the_names_they_are_asked_for(run):
    """Two may be called `python` by models; what has no timeout does not say `inf`."""
    _, out, _ = run("tools")

    firsts = [line.split(" ")[0] for line in out.splitlines()]
    assert firsts.count("python") == firsts.count("python_numpy") == 1
    assert "inf" not in out.split()


def test_tool_schemas_are_openai_functions(run):
    """Other programs read them."""
    schemas = json.loads(run("tools", "--json")[1])

    names = [schema["function"]["name"] for schema in schemas]
    assert "calculator" in names
    assert all(schema["type"] == "function" for schema in schemas)


def test_an_oracle_rollout_is_perfect_and_leaves_one_line_each(run, tmp_path: Path):
    """The whole loop without a model: what a policy would have to produce, token by token."""
    out_file = tmp_path / "out.jsonl"
    code, out, _ = run("rollout", "--policy", "oracle", "--n", 6, "--out", out_file)

    trajectories = list(read_jsonl(out_file))
    lines = [json.loads(line) for line in out_file.read_text().splitlines()]
    assert code == 0
    assert [t.reward for t in trajectories] == [1.0] * 6
    assert [line["return"] for line in lines] == [1.0] * 6
    assert {t.num_turns for t in trajectories} == {2, 3, 4}
    assert "sampled" in out
    assert "Answer: " in out
    assert "\x1b[" not in out


@pytest.mark.slow
def test_any_number_of_trajectories_begins_at_once(tmp_path: Path):
    """Whoever wants many can look at the first ones while the others are played."""
    out_file = tmp_path / "out.jsonl"
    words = ["rollout", "--policy", "oracle", "--n", "999999999", "--concurrency", "4", "--out"]
    process = subprocess.Popen(
        [sys.executable, "-m", "agentgym", *words, str(out_file)],
        stderr=subprocess.PIPE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (4 << 30, 4 << 30)),
    )
    end = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < end:
        if out_file.exists() and out_file.read_text().count("\n") > 20:
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)

    assert process.returncode == 130
    assert err.count(b"\n") == 1
    assert b"stopped after" in err
    assert b"--resume goes on" in err
    assert len(list(read_jsonl(out_file))) > 20


def test_more_than_can_be_listed_are_counted(run, tmp_path: Path, monkeypatch):
    """The means are over all; earlier ones and new ones alike."""
    monkeypatch.setattr("agentgym.commands.rollout.NUM_ROWS", 2)
    play = ("rollout", "--policy", "oracle", "--show", 1, "--out", tmp_path / "out.jsonl")
    run(*play, "--n", 3)
    code, out, _ = run(*play, "--n", 6, "--resume")

    words = [line.split() for line in out.splitlines()]
    assert code == 0
    assert [row[0] for row in words if row and row[0].startswith("g")] == ["g0-m0", "g1-m0"]
    assert "... and 4 more" in out
    assert next(row for row in words if row[:1] == ["mean"])[:3] == ["mean", "1.000", "3.0"]
    assert out.endswith(f"3 trajectories added to {tmp_path / 'out.jsonl'}\n")


def test_rollouts_are_told_apart_by_seed_and_split(run, tmp_path: Path):
    """Held-out tasks must never be those of training."""
    tasks = {}
    for split in ("train", "eval"):
        path = tmp_path / f"{split}.jsonl"
        run("rollout", "--policy", "oracle", "--n", 6, "--split", split, "--out", path)
        tasks[split] = {t.task_id for t in read_jsonl(path)}

    assert len(tasks["train"]) == len(tasks["eval"]) == 6
    assert not tasks["train"] & tasks["eval"]


def test_a_script_plays_its_turns_to_every_trajectory(run, tmp_path: Path):
    """How an env answers a given mistake is looked at this way."""
    script = tmp_path / "script.yaml"
    script.write_text(SCRIPT)
    out_file = tmp_path / "out.jsonl"
    code, out, _ = run(
        *("rollout", "--policy", f"scripted:{script}", "--n", 2, "--group-size", 2),
        *("--out", out_file),
    )

    first, second = read_jsonl(out_file)
    assert code == 0
    assert (first.group_id, first.task_id) == (second.group_id, second.task_id)
    assert first.num_turns == 2
    assert first.rollout_infos["tool_failures"] == {"tool_error": 1}
    assert first.rewards == {"correct": 0.0, "format": 1.0}
    assert "tool_response" in out


@pytest.mark.parametrize(
    ("name", "text", "script"),
    [
        ("a.json", '["x", [1, 2]]', ["x", [1, 2]]),
        ("a.yaml", "g0-*: [x]\n'*': [y]", {"g0-*": ["x"], "*": ["y"]}),
        ("a.jsonl", '"x"\n\n"y"\n', ["x", "y"]),
    ],
)
def test_scripts_are_lists_of_turns(tmp_path: Path, name: str, text: str, script: object):
    """The three forms that --help promises."""
    (tmp_path / name).write_text(text)

    assert read_script(tmp_path / name) == script


@pytest.mark.parametrize("content", ["{", "3", '[["a"]]', '{"a": "text"}', "[[1.5]]", "[[true]]"])
def test_a_script_of_anything_else_is_refused_by_name(tmp_path: Path, content: str):
    """Turns are texts or lists of token ids."""
    path = tmp_path / "script.json"
    path.write_text(content)

    with pytest.raises(ConfigError, match=r"script\.json"):
        read_script(path)


def test_an_existing_file_is_kept_unless_it_is_gone_on_with(run, tmp_path: Path):
    """Trajectories are dear; none is overwritten, played twice or mixed with another run's."""
    out_file = tmp_path / "out.jsonl"
    play = ("rollout", "--policy", "oracle", "--show", 0, "--out", out_file)
    run(*play, "--n", 2)
    before = out_file.read_text()

    refused(run(*play, "--n", 4), "exists", "--resume")
    assert out_file.read_text() == before

    out_file.write_text(before + '{"cut')
    assert run(*play, "--n", 4, "--resume")[0] == 0
    assert out_file.read_text().startswith(before)
    assert sorted(t.request_id for t in read_jsonl(out_file)) == [f"g{i}-m0" for i in range(4)]

    refused(run(*play, "--n", 4, "--resume", "--seed", 9), "other trajectories", "-m0")


def test_what_failed_is_told_and_played_again(run, tmp_path: Path):
    """A busy endpoint is no reason to play everything again, nor to be without some for good."""
    out_file, policy = tmp_path / "out.jsonl", tmp_path / "policy.json"
    policy.write_text('{"g1-m0": [], "*": ["<answer>1</answer>"]}')
    play = ("rollout", "--policy", f"scripted:{policy}", "--show", 0, "--n", 3, "--out", out_file)
    code, _, err = run(*play)
    first = {t.request_id: t for t in read_jsonl(out_file)}

    assert code == 0
    assert first["g1-m0"].stop_reason.is_failure
    assert err.startswith("1 of 3 trajectories failed, as g1-m0 (")
    assert err.endswith("); the same command with --resume plays them again\n")

    policy.write_text('["<answer>2</answer>"]')
    assert run(*play, "--resume")[2] == ""
    again = {t.request_id: t for t in read_jsonl(out_file)}
    assert len(again) == len(out_file.read_text().splitlines()) == 3
    assert not again["g1-m0"].stop_reason.is_failure
    assert {n: t for n, t in again.items() if n != "g1-m0"} == {
        n: t for n, t in first.items() if n != "g1-m0"
    }


@pytest.mark.parametrize(
    "text", ["my notes", "my notes\nof today\n", "{whole}\nmy notes\n", "{whole}\nnotes\n{whole}"]
)
def test_a_file_that_is_not_ours_is_left_alone(run, tmp_path: Path, text: str):
    """--out may be mistyped, and --resume with it."""
    out_file = tmp_path / "out.jsonl"
    play = ("rollout", "--policy", "oracle", "--show", 0, "--n", 1, "--out")
    run(*play, tmp_path / "one.jsonl")
    content = text.replace("{whole}", (tmp_path / "one.jsonl").read_text().rstrip("\n"))
    out_file.write_text(content)

    refused(run(*play, out_file, "--resume"), "out.jsonl", "no trajectory")
    assert out_file.read_text() == content


def test_a_last_trajectory_without_a_line_break_is_kept(run, tmp_path: Path):
    """Editors and other programs leave files like that."""
    out_file = tmp_path / "out.jsonl"
    play = ("rollout", "--policy", "oracle", "--show", 0, "--out", out_file)
    run(*play, "--n", 2)
    before = out_file.read_text()
    out_file.write_text(before.rstrip("\n"))

    assert run(*play, "--n", 3, "--resume")[0] == 0
    assert out_file.read_text().startswith(before)
    assert len(list(read_jsonl(out_file))) == 3


def test_a_plugin_brings_an_env(run, echo: Path):
    """The way into the gym for code that is not installed."""
    code, out, _ = run("envs", "--names", "--plugins", echo)

    assert code == 0
    assert "echo" in out.splitlines()


def test_an_env_without_an_oracle_says_so(run, echo: Path):
    """Most envs have none."""
    refused(
        run("rollout", "--env", "echo", "--plugins", echo, "--policy", "oracle"),
        *("'echo'", "oracle(task, messages)"),
    )


def test_trajectories_that_all_failed_are_shown_and_the_exit_code_says_so(run, tmp_path: Path):
    """A script that is too short is an error of the engine, not a crash."""
    script = tmp_path / "script.json"
    script.write_text("[]")
    code, out, _ = run("rollout", "--policy", f"scripted:{script}", "--n", 1)

    assert code == 1
    assert "api_error" in out
    assert "0 turns" in out
