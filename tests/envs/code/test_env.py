"""The env of programming tasks: what is asked, what the tools tell, what an answer earns."""

import asyncio
import json
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env
from local_kit import launchers, provider

from agentgym import envs
from agentgym.envs import Task
from agentgym.envs.code import CodeEnv
from agentgym.envs.code.answers import blocks_of, fenced, has_form, program_of
from agentgym.envs.code.challenge import challenge_of
from agentgym.envs.code.problems import LEVELS, bank, data_of
from agentgym.envs.levels import SPLITS
from agentgym.errors import ConfigError, SandboxError
from agentgym.messages import Message, assistant
from agentgym.tools.sandbox.base import isolation_of
from agentgym.tools.sandbox.host.provider import LocalProvider

ALL = {"passed": 1.0, "public": 1.0, "runs": 1.0, "format": 1.0}
NONE = dict.fromkeys(ALL, 0.0)
DOUBLE = Task(
    id="double",
    data={
        "statement": "Write a function `double(x)` that returns twice x.",
        "public_tests": [{"kind": "call", "function": "double", "args": [2], "expected": 4}],
        "hidden_tests": [
            {"kind": "call", "function": "double", "args": [x], "expected": 2 * x}
            for x in (0, 3, -5, 10)
        ],
        "solution": "def double(x):\n    return 2 * x",
    },
)


def make(*levels: int, **arguments: Any) -> CodeEnv:
    env = CodeEnv(levels or tuple(LEVELS), **arguments)
    env.sandbox_provider = provider()
    return env


async def play(env: CodeEnv, task: Task, *said: str | Message) -> tuple[list[Any], dict[str, Any]]:
    """Observations, and the info of the last step."""
    await env.areset(seed=0, options={"task": task})
    told, info = [], {}
    for message in said:
        observation, _, _, _, info = await env.astep(message)
        told += [each.content for each in observation]
    await env.aclose()
    return told, info


async def rewards_of(answer: str, *, task: Task = DOUBLE, **arguments: Any) -> dict[str, Any]:
    return (await play(make(**arguments), task, answer))[1]["rewards"]


@pytest.mark.parametrize("level", LEVELS)
async def test_the_oracle_earns_everything(level: int):
    env = make(level)
    task = env.tasks(SPLITS[level % 2])[level]
    _, info = await play(env, task, env.oracle(task, []))

    assert info["rewards"] == ALL
    assert info["report"]["grade"].keys() == {"public", "hidden"}
    assert info["report"]["sandbox"] == isolation_of(provider())


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
async def test_the_oracle_earns_everything_on_every_problem(level: int):
    """In a sandbox, of each problem several variants."""
    from random import Random

    from agentgym.envs.code.bank.base import vary

    sketches = [sketch for sketch in bank() if sketch.level == level]
    tasks = [
        Task(id=f"{sketch.name}{seed}", data=data_of(vary(sketch, Random(seed))))
        for sketch in sketches
        for seed in range(2)
    ]
    played = await asyncio.gather(*(play(make(), t, make().oracle(t, [])) for t in tasks))

    assert [info["rewards"] for _, info in played] == [ALL] * len(tasks)


@pytest.mark.parametrize(
    ("answer", "rewards"),
    [
        (fenced("def double(x):\n    return x + x"), ALL),
        (f"First.\n{fenced('double = lambda x: x * 2')}", ALL),
        (f"{fenced('def double(x): return 2 * x')}\nThat is it.", ALL | {"format": 0.0}),
        (f"{fenced('pass')}\n{fenced('def double(x): return 2 * x')}", ALL | {"format": 0.0}),
        ("def double(x):\n    return 2 * x", ALL | {"format": 0.0}),
        (fenced("def double(x):\n    return x * x"), ALL | {"passed": 0.25}),
        (fenced("def double(x):\n    return str(2 * x)"), NONE | {"runs": 1.0, "format": 1.0}),
        (fenced("def double(x):\n    print(2 * x)"), NONE | {"runs": 1.0, "format": 1.0}),
        (fenced("def double(x)\n    return 2 * x"), NONE | {"format": 1.0}),
        (fenced("def twice(x):\n    return 2 * x"), NONE | {"format": 1.0}),
        (fenced("def double(x): return 2 * x", "rust"), NONE),
        ("```python\ndef double(x):\n    return 2 * x", NONE),
        ("4", NONE),
        ("```python\n\n```", NONE),
    ],
)
async def test_an_answer_earns_what_its_tests_say(answer: str, rewards: dict[str, float]):
    assert await rewards_of(answer) == rewards


async def test_all_or_nothing_counts_public_tests_too():
    """A table of the hidden ones is no solution either."""
    square = fenced("def double(x):\n    return x * x")
    mostly = fenced("def double(x):\n    return 0 if x == 2 else 2 * x")

    assert (await rewards_of(square, partial=False))["passed"] == 0.0
    assert (await rewards_of(mostly, partial=False))["passed"] == 0.0
    assert (await rewards_of(mostly))["passed"] == 1.0
    assert (await rewards_of(fenced("double = (2).__mul__"), partial=False))["passed"] == 1.0


async def test_a_program_that_never_ends_is_not_tried_on_every_test():
    """Otherwise one bad answer would hold a core for as many seconds as there are tests."""
    env = make(limits={"cpu_s": 0.2})
    _, info = await play(env, DOUBLE, fenced("def double(x):\n    while True: pass"))

    assert info["rewards"] == NONE | {"format": 1.0}
    assert info["report"]["grade"]["hidden"] == "0/4"
    assert "cpu_limit" in info["report"]["grade"]["first_failure"]


async def test_a_program_that_is_slow_on_one_hidden_test_loses_that_one():
    env = make(limits={"cpu_s": 0.2})
    program = "def double(x):\n    while x == 10: pass\n    return 2 * x"
    _, info = await play(env, DOUBLE, fenced(program))

    assert info["rewards"] == ALL | {"passed": 0.75}


async def test_the_tools_tell_of_the_examples_only():
    env = make()
    calls = [
        assistant("", ("python", {"code": "x = 20 + 1\nx * 2"})),
        assistant("", ("run_tests", {"program": "def double(x):\n    return x * x"})),
        assistant("", ("run_tests", {"program": "def double(x):\n    return 1"})),
    ]
    told, info = await play(env, DOUBLE, *calls, fenced("def double(x): return 2 * x"))

    assert "42" in told[0]
    assert told[1] == "1 of 1 examples are right.\nright: double(2) returns 4"
    assert told[2].startswith("0 of 1 examples are right.\nWRONG: double(2) returns 4")
    assert info["rewards"] == ALL
    assert info["report"]["sandbox"]["level"] >= 2


async def test_nothing_of_one_episode_is_in_the_report_of_the_next():
    env = make()
    await play(env, DOUBLE, fenced("def double(x): return 2 * x"))
    await env.areset(seed=0, options={"task": DOUBLE})
    _, _, _, _, info = await env.astep(assistant("", ("nothing", {})))

    assert "grade" not in info.get("report", {})
    await env.aclose()


def test_the_prompt_shows_examples_and_neither_hidden_tests_nor_the_solution():
    for level in LEVELS:
        task = make(level).tasks()[0]
        prompt = make().prompt(task)
        challenge = challenge_of(task)

        assert prompt.count("\n- ") == len(challenge.public) == 3
        assert task["solution"] not in prompt
        shown = [json.dumps(test) for test in task["public_tests"]]
        assert not [test for test in task["hidden_tests"] if json.dumps(test) in shown]


async def test_an_episode_that_is_cut_earns_nothing():
    env = make()
    await env.areset(seed=0, options={"task": DOUBLE})

    assert await env.acut() == NONE
    await env.aclose()


async def test_a_sandbox_that_fails_is_nobodys_score():
    """It is raised, so that the loop tries again and at last leaves the trajectory out."""
    env = make()
    closed = LocalProvider(next(iter(launchers().values())), warm=0)
    await closed.aclose()
    env.sandbox_provider = closed
    await env.areset(seed=0, options={"task": DOUBLE})

    with pytest.raises(SandboxError):
        await env.astep(fenced("def double(x): return 2 * x"))
    await env.aclose()


ROWS = [
    {
        "task_id": 1,
        "text": "Write a function to add one.",
        "code": "def inc(x):\n    return x + 1",
        "test_list": ["assert inc(1) == 2", "assert inc(-1) == 0"],
    },
    {
        "id": "sum",
        "question": "Print the sum of the numbers of the input.",
        "input_output": {"inputs": ["1 2\n", "5\n"], "outputs": ["3\n", "5\n"]},
        "solutions": ["print(sum(map(int, input().split())))"],
    },
    {
        "task_id": "HumanEval/x",
        "prompt": 'def twice(x):\n    """Return twice x."""\n',
        "entry_point": "twice",
        "canonical_solution": "    return 2 * x\n",
        "test": "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(0) == 0",
    },
]


@pytest.mark.parametrize("row", ROWS, ids=["mbpp", "apps", "humaneval"])
async def test_rows_of_the_common_formats_are_tasks(row: dict[str, Any]):
    """As a training data set brings them; MBPP's asserts are shown, others have no examples."""
    env, task = make(), Task(id="row", data=row)
    _, info = await play(env, task, env.oracle(task, []))
    rewards = ALL if "test_list" in row else ALL | {"public": None}

    assert info["rewards"] == rewards
    assert (await play(make(), task, fenced("def inc(x): return 7")))[1]["rewards"]["passed"] == 0.0


def test_problems_of_a_file_are_in_one_split_each(tmp_path: Path):
    path = tmp_path / "problems.jsonl"
    rows = [ROWS[0] | {"task_id": n, "text": f"Problem {n}."} for n in range(40)]
    path.write_text("\n".join(map(json.dumps, rows)))
    env = make(file=str(path))
    ids = [{task.id for task in env.tasks(split)} for split in SPLITS]

    assert ids[0] | ids[1] == {str(n) for n in range(40)}
    assert not ids[0] & ids[1]
    assert 2 <= len(ids[1]) <= 16
    with pytest.raises(ConfigError, match="split must be"):
        env.tasks("test")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"levels": ()}, "levels must be some of"),
        ({"levels": (1, 9)}, "levels must be some of"),
        ({"tools": ("pyhton",)}, "tools must be some of"),
        ({"limits": {"cpu": 1}}, "limits has no 'cpu'"),
        ({"limits": {"cpu_s": "1"}}, "must be a number"),
        ({"limits": {"cpu_s": 0}}, "cpu_s=0"),
        ({"limits": 3}, "limits must be a mapping"),
        ({"tools": "pyhton"}, "got 'pyhton'"),
        ({"file": "nowhere.jsonl"}, "nowhere.jsonl"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(arguments: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        envs.make("code", **arguments)


def test_every_tool_set_can_be_had():
    """A name that another module no longer has would only show when it is used."""
    env = make(tools=("run_tests", "python", "shell", "files"))

    assert {"run_tests", "python", "shell", "read_file", "write_file"} <= {
        t.name for t in env.tools
    }
    assert make(tools=()).tools == ()


@pytest.mark.filterwarnings("ignore:.*alternative render modes")
def test_gymnasium_accepts_it():
    env = gymnasium.make(envs.spec("code").id)
    check_env(env.unwrapped)
    env.close()


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("```python\na\n```", "a\n"),
        ("```\na\n```", "a\n"),
        ("~~~py\na\n~~~", "a\n"),
        ("````python\n```\na\n```\n````", "```\na\n```\n"),
        ("```python\na\n```\n```python\nb\n```", "b\n"),
        ("```python\na\n```\n```text\nb\n```", "a\n"),
        ("   ```python\n  a\n   ```", "a\n"),
        ("```python\r\na\r\n```\r\n", "a\r\n"),
        ("```python\na", None),
        ("```python\n \n```", None),
        ("say `python` a", None),
        ("", None),
        (None, None),
    ],
)
def test_the_program_is_the_last_closed_block_of_the_language(
    text: str | None, program: str | None
):
    assert program_of(text) == program


def test_a_program_with_fences_in_it_survives_being_fenced():
    code = 'text = """\n```python\nx\n```\n"""'

    assert program_of(fenced(code)) == code + "\n"
    assert has_form(fenced(code))
    assert len(list(blocks_of(fenced(code) + "\n" + fenced("b")))) == 2
