"""The maths env: exact answers, no reward for copying, any questions and answers."""

import asyncio
import json
from collections.abc import Sequence
from fractions import Fraction
from math import gcd
from pathlib import Path
from random import Random

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym import envs
from agentgym.envs import Task
from agentgym.envs.levels import SPLITS, split_of
from agentgym.envs.maths import MathsEnv
from agentgym.envs.maths.scoring import has_form, is_announced, is_correct, is_worked_out
from agentgym.envs.maths.tasks import LEVELS, draw
from agentgym.errors import ConfigError
from agentgym.messages import Message, assistant
from agentgym.rewards.math import grade
from agentgym.tools.calculator import calculator

EVERY_LEVEL = tuple(LEVELS)
indices = st.integers(0, 2**31 - 1)
levels = st.sampled_from(EVERY_LEVEL)
few = settings(max_examples=30, deadline=None)


def make(*chosen: int) -> MathsEnv:
    return MathsEnv(chosen or EVERY_LEVEL)


def say(task: Task, text: str, env: MathsEnv | None = None) -> dict[str, float | None]:
    """Rewards of an episode that is one message, or three times nothing."""
    env = env or make()
    env.reset(seed=0, options={"task": task})
    over, info = False, {}
    while not over:
        _, _, terminated, truncated, info = env.step(text)
        over = terminated or truncated
    env.close()
    return info["rewards"]


@given(levels, indices, st.sampled_from(SPLITS))
@few
def test_the_oracle_earns_everything(level: int, index: int, split: str):
    """Every answer can be given in the asked form."""
    env = make(level)
    task = env.tasks(split)[index]

    assert say(task, env.oracle(task, []).content) == {"correct": 1.0, "format": 1.0}
    assert say(task, f"Thinking.\n\\boxed{{{task['answer']}}}")["correct"] == 1.0


@given(levels, indices, st.sampled_from(SPLITS))
@few
def test_the_same_index_is_the_same_task(level: int, index: int, split: str):
    task = make(level).tasks(split)[index]

    assert task == make(level).tasks(split)[index]
    assert task == Task.model_validate_json(task.model_dump_json())
    assert task["level"] == level


@given(levels, st.randoms(use_true_random=False))
@settings(max_examples=12, deadline=None)
def test_no_answer_can_be_copied(level: int, rng: Random):
    """Neither the question, nor a number in it, nor its terms put into a box."""
    problem = draw(level, rng)
    task = Task(id="t", data=problem.data)
    question = task["question"]
    copies = [question, f"\\boxed{{{question}}}", f"Answer: {question}", question.split()[-1]]
    copies += [
        f"Answer: {word.strip('.,?')}" for word in question.split() if any(map(str.isdigit, word))
    ]

    assert all(say(task, copy)["correct"] == 0.0 for copy in copies)


@pytest.mark.parametrize("level", EVERY_LEVEL)
def test_no_problem_is_in_both_splits(level: int):
    train, held_out = (
        {make(level).tasks(split)[index]["question"] for index in range(150)} for split in SPLITS
    )

    assert len(held_out) > 25
    assert not train & held_out


def test_equations_are_solved_by_their_answers():
    """Put into the question, the answer makes it true; the calculator is the judge."""
    env = make(4)
    for index in range(60):
        task = env.tasks()[index]
        left, _, right = task["question"].partition(" = ")
        left = left.split("equation ")[1]
        right = right.split(" for x")[0].rstrip("?")
        sides = [
            calculator.function(side.replace("x", f"*({task['answer']})")) for side in (left, right)
        ]
        assert sides[0] == sides[1], task


def test_fractions_and_shares_have_exact_answers():
    """Reckoned once more from the words."""
    for index in range(60):
        task = make(2).tasks()[index]
        words = task["question"].replace(".", " ").replace(",", " ").replace("?", " ").split()
        first, second = (Fraction(word) for word in words if "/" in word)
        expected = {
            "Add": first + second,
            "Subtract": second - first,
            "Multiply": first * second,
            "Divide": first / second,
            "Somebody": (1 - first) * (1 - second),
        }[words[0]]
        assert Fraction(task["answer"]) == expected


@pytest.mark.parametrize(
    "text", ["", "hm", "Answer:", "Answer: ", "\\boxed{}", "\\boxed{4", "Answer: x"]
)
def test_no_answer_earns_nothing(text: str):
    assert say(make().tasks()[0], text) == {"correct": 0.0, "format": 0.0}


@given(indices)
@few
def test_several_answers_earn_nothing(index: int):
    """Listing many numbers contains the right one."""
    task = make().tasks()[index]
    answer = task["answer"]

    for text in (f"Answer: 1\nAnswer: {answer}", f"Answer: {answer}, 1, 2, 3", f"1 or {answer}"):
        assert say(task, text) == {"correct": 0.0, "format": 0.0}


def test_random_numbers_earn_little_more_than_their_form():
    rng, env = Random(0), MathsEnv()
    scores = [say(env.tasks("eval")[i], f"Answer: {rng.randint(0, 500)}", env) for i in range(100)]

    assert sum(score["correct"] for score in scores) <= 3
    assert all(score["format"] == 1.0 for score in scores)


@pytest.mark.parametrize(
    ("gold", "message", "correct", "form"),
    [
        ("3/4", "Answer: 3/4", True, True),
        ("3/4", "First 1/2 + 1/4.\nAnswer: 3/4", True, True),
        ("3/4", "Answer: 0.75", True, True),
        ("3/4", "Answer: 6/8", False, False),
        ("3/4", "Answer: 1/2+1/4", False, False),
        ("3/4", "\\boxed{\\frac{3}{4}}", True, False),
        ("3/4", "<answer>3/4</answer>", True, False),
        ("3/4", "The answer is 3/4.", True, False),
        ("3/4", "3/4", True, False),
        ("3/4", "3/4 of it is what is left in the end", False, False),
        ("12", "Answer: 12 pens", True, False),
        ("12", "Answer: 3*4", False, False),
        ("12", "Answer: 24/2", False, False),
        ("1234", "Answer: 1,234", True, True),
        ("-9, 11", "Answer: 11, -9", True, True),
        ("-9, 11", "Answer: x = -9 or x = 11", True, False),
        ("-9, 11", "Answer: 11", False, False),
        ("(-3, 6)", "Answer: (-3, 6)", True, True),
        ("(-3, 6)", "Answer: (6, -3)", False, True),
        ("(-3, 6)", "Answer: x=-3, y=6", True, True),
    ],
)
def test_what_counts_as_an_answer(gold: str, message: str, correct: bool, form: bool):
    assert is_correct(gold, message, exact=True) is correct
    assert has_form(gold, message, exact=True) is form


@given(st.text(max_size=60))
@few
def test_reading_never_fails(text: str):
    for said in (text, f"Answer: {text}", f"Answer: 3/{text}"):
        assert isinstance(is_announced(said), bool)
        assert isinstance(is_worked_out(said), bool)
        assert isinstance(has_form("3", said, exact=True), bool)
        assert isinstance(is_correct("3", said, exact=True), bool)


async def test_the_calculator_may_be_used():
    env = MathsEnv()
    task = env.tasks()[0]
    await env.areset(options={"task": task})
    observation, _, terminated, _, _ = await env.astep(
        assistant("", ("calculator", {"expression": "2*75+7*36"}))
    )
    assert observation[0].content == "402"
    assert not terminated
    *_, info = await env.astep(f"Answer: {task['answer']}")

    assert info["rewards"]["correct"] == 1.0
    assert MathsEnv(calculator=False).tools == ()


ROWS = [
    {"problem": f"What is {n} squared?", "solution": f"{n}^2 = {n * n}\n#### {n * n}"}
    for n in range(40)
]


def test_any_file_with_questions_and_answers(tmp_path: Path):
    """The answer may be a whole solution; one row in five is held out."""
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)) + "\n")
    env = MathsEnv(file=str(path), question="problem", answer="solution")
    train, held_out = (list(env.tasks(split)) for split in SPLITS)

    assert len(train) + len(held_out) == 40
    assert all(split_of(task["problem"]) == "eval" for task in held_out)
    assert held_out
    for task in train:
        number = task["solution"].rpartition(" ")[2]
        assert say(task, f"Answer: {number}", env) == {"correct": 1.0, "format": 1.0}
        assert say(task, env.oracle(task, []).content, env) == {"correct": 1.0, "format": 1.0}
        assert say(task, task["problem"], env)["correct"] == 0.0


def test_rows_of_a_training_set():
    """What a trainer hands in as a task is a row."""
    env = MathsEnv()
    task = Task(id="0", data={"question": "Simplify $x+x$.", "answer": "2x"})

    assert say(task, "\\boxed{x \\cdot 2}", env)["correct"] == 1.0
    with pytest.raises(ConfigError, match=r"no column 'answer'.*it has question: name the column"):
        env.prompt(Task(id="0", data={"question": "?"}))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "holds no problems"),
        ("{", r"rows.jsonl:1 is no JSON"),
        ("[1]", r"rows.jsonl:1 is no JSON object"),
        (
            '{"question": "?", "solution": "1"}',
            r"rows.jsonl:1 has no column 'answer'; it has question",
        ),
    ],
)
def test_files_that_cannot_be_used_are_refused(tmp_path: Path, content: str, message: str):
    path = tmp_path / "rows.jsonl"
    path.write_text(content)

    with pytest.raises(ConfigError, match=message):
        MathsEnv(file=str(path))
    with pytest.raises(ConfigError, match="cannot be read"):
        MathsEnv(file=str(tmp_path / "none.jsonl"))


@pytest.mark.parametrize("chosen", [(), (0,), (1, 9)])
def test_unknown_levels_and_splits_are_refused(chosen: Sequence[int]):
    with pytest.raises(ConfigError, match="levels"):
        MathsEnv(chosen)
    with pytest.raises(ConfigError, match="split"):
        make().tasks("test")


def test_interleaved_episodes_do_not_meet():
    async def both() -> list[dict[str, float | None]]:
        first, second = make(), make()
        for index, env in enumerate((first, second)):
            await env.areset(options={"task": env.tasks()[index]})
        answers = [env.tasks()[index]["answer"] for index, env in enumerate((first, second))]
        steps = [
            await env.astep(f"Answer: {a}") for env, a in zip((first, second), answers, strict=True)
        ]
        return [step[-1]["rewards"] for step in steps]

    assert asyncio.run(both()) == [{"correct": 1.0, "format": 1.0}] * 2


@pytest.mark.filterwarnings("ignore:.*alternative render modes")
def test_gymnasium_accepts_it():
    env = gymnasium.make(envs.spec("maths").id)
    check_env(env.unwrapped)
    env.close()


def test_levels_are_told_apart_and_answers_are_in_lowest_terms():
    for level in EVERY_LEVEL:
        for index in range(30):
            answer = make(level).tasks()[index]["answer"]
            top, _, bottom = answer.partition("/")
            assert not bottom or gcd(int(top), int(bottom)) == 1
            assert grade(answer, f"\\boxed{{{answer}}}")


def conversation(env: MathsEnv, task: Task) -> list[Message]:
    observation, _ = env.reset(options={"task": task})
    env.close()
    return observation


def test_the_prompt_says_what_is_asked_and_not_the_answer():
    env = make()
    for index in range(12):
        task = env.tasks()[index]
        system, question = conversation(env, task)
        assert "Answer: " in system.content
        assert question.content == task["question"]
