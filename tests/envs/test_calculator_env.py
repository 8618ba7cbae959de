"""The calculator env: what is asked, what is allowed, what is worth how much."""

from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.envs.calculator import CalculatorEnv, oracle
from agentgym.envs.calculator.arithmetic import (
    OPERATORS,
    Expression,
    Operation,
    evaluate,
    to_decimal,
    to_steps,
    to_text,
)
from agentgym.envs.calculator.oracle import fill
from agentgym.envs.calculator.scoring import has_exact_form, read_answer
from agentgym.envs.calculator.tasks import LEVELS
from agentgym.envs.levels import split_of
from agentgym.errors import ConfigError
from agentgym.messages import Message, assistant
from agentgym.tools.calculator import calculator
from agentgym.trajectory import Task

EVERY_LEVEL = tuple(LEVELS)
indices = st.integers(0, 2**31 - 1)
splits = st.sampled_from(["train", "eval"])
leaves = st.integers(1, 999).map(lambda n: Fraction(n, 10))
trees = st.recursive(
    leaves, lambda inner: st.builds(Operation, st.sampled_from("+-*"), inner, inner), max_leaves=6
)


def make_env(*levels: int) -> CalculatorEnv:
    return CalculatorEnv(levels or EVERY_LEVEL)


async def play(env: CalculatorEnv, task: Task, policy) -> dict[str, float]:
    """Rewards of an episode; `policy` maps (task, messages) to the next assistant message."""
    messages, _ = await env.areset(seed=0, options={"task": task})
    over = False
    while not over:
        messages.append(policy(task, messages))
        observation, _, terminated, truncated, info = await env.astep(messages[-1])
        messages += observation
        over = terminated or truncated
    return info["rewards"]


@given(indices, splits)
def test_the_same_index_is_the_same_task(index: int, split: str):
    """Groups, resumed runs and evaluations rely on it."""
    first, second = make_env().tasks(split)[index], make_env().tasks(split)[index]

    assert first == second
    assert first["level"] == EVERY_LEVEL[index % len(EVERY_LEVEL)]


@given(indices, indices, st.sampled_from(EVERY_LEVEL))
def test_no_formula_is_in_both_splits(index: int, other: int, level: int):
    """The formula alone decides, so another wording cannot carry a problem over."""
    train = make_env(level).tasks("train")[index]
    held_out = make_env(level).tasks("eval")[other]

    assert train["steps"] != held_out["steps"]
    assert split_of(formula(train)) == "train"
    assert split_of(formula(held_out)) == "eval"


def formula(task: Task) -> str:
    """The task's problem as the one line of arithmetic that its steps spell out."""
    built: list[Expression] = []
    for step in task["steps"]:
        where = next(i for i, char in enumerate(step) if i and char in OPERATORS)
        sides = [
            built[int(side[1:]) - 1] if side.startswith("#") else Fraction(side)
            for side in (step[:where], step[where + 1 :])
        ]
        built.append(Operation(step[where], *sides))
    return to_text(built[-1])


@given(trees)
def test_text_steps_and_value_of_a_formula_agree(tree: Expression):
    """Brackets and step order come from one tree; the calculator is the independent judge."""
    results: list[str] = []
    for step in to_steps(tree):
        results.append(calculator.function(fill(step, results)))

    assert calculator.function(to_text(tree)) == to_decimal(evaluate(tree))
    assert not results or results[-1] == to_decimal(evaluate(tree))


@given(st.integers(), st.integers(0, 12), st.integers(0, 12))
def test_decimals_are_exact(numerator: int, twos: int, fives: int):
    value = Fraction(numerator, 2**twos * 5**fives)

    assert Fraction(to_decimal(value)) == value
    assert to_decimal(value) == to_decimal(Fraction(to_decimal(value)))


def test_a_fraction_without_finite_decimals_is_refused():
    with pytest.raises(ValueError, match="1/3"):
        to_decimal(Fraction(1, 3))


@pytest.mark.parametrize("level", EVERY_LEVEL)
@pytest.mark.parametrize("split", ["train", "eval"])
async def test_the_oracle_earns_everything(level: int, split: str):
    """Every level can be solved with what the policy gets to see, within the turn limit."""
    env = make_env(level)
    for index in range(40):
        task = env.tasks(split)[index]
        assert await play(env, task, oracle) == {"correct": 1.0, "format": 1.0}


async def test_chains_need_one_turn_per_operation():
    env = make_env(3)
    task = env.tasks("train")[0]
    messages, _ = await env.areset(options={"task": task})
    turns = 0
    while not messages[-1].content.startswith("Answer"):
        messages.append(oracle(task, messages))
        observation, *_ = await env.astep(messages[-1])
        messages += observation
        turns += 1

    assert turns == 4


def says_nothing(task: Task, messages: list[Message]) -> Message:
    return assistant("")


def echoes(task: Task, messages: list[Message]) -> Message:
    return assistant(messages[-1].content)


def lists_numbers(task: Task, messages: list[Message]) -> Message:
    return assistant("Answer: " + " ".join(str(n) for n in range(10000)))


def answers_many_times(task: Task, messages: list[Message]) -> Message:
    return assistant("\n".join(f"Answer: {n}" for n in range(10000)))


@pytest.mark.parametrize("policy", [says_nothing, echoes, lists_numbers, answers_many_times])
async def test_a_policy_that_does_no_work_earns_nothing(policy):
    """Listing every number contains the right one and must not pay."""
    env = make_env()
    for index in range(50):
        assert await play(env, env.tasks("eval")[index], policy) == {"correct": 0.0, "format": 0.0}


async def test_a_random_guess_earns_little_more_than_its_form():
    env, rng = make_env(), Random(0)
    scores = [
        await play(
            env, env.tasks("eval")[i], lambda *_: assistant(f"Answer: {rng.randint(0, 999)}")
        )
        for i in range(200)
    ]

    assert sum(score["correct"] for score in scores) <= 4
    assert all(score["format"] == 1.0 for score in scores)


@pytest.mark.parametrize(
    ("text", "value", "exact"),
    [
        ("Answer: 42", "42", True),
        ("Answer: -3.50", "-3.5", True),
        ("Answer: 1,234", "1234", True),
        (" Answer: 42\n", "42", True),
        ("42", "42", False),
        ("**Answer: 42**", "42", False),
        ("The answer is 42.", "42", False),
        ("12 + 30 = 42. Answer: 42", "42", False),
        ("Answer: 42 or 43", None, False),
        ("Answer: 1,2,3", None, False),
        ("Answer: 41\nAnswer: 42", None, False),
        ("12 or 30", None, False),
        ("1/2", None, False),
        ("x42", None, False),
        ("1.2.3", None, False),
        ("Answer:", None, False),
        ("Answer: " + "9" * 100_000, None, False),
    ],
)
def test_one_answer_is_read_and_several_are_none(text: str, value: str | None, exact: bool):
    assert read_answer(text) == (None if value is None else Fraction(value))
    assert has_exact_form(text) is exact


@given(st.text())
def test_reading_an_answer_never_fails(text: str):
    for candidate in (text, f"Answer: {text}", f"Answer: 7{text}"):
        assert has_exact_form(candidate) is False or read_answer(candidate) is not None


@pytest.mark.parametrize(
    ("expression", "answered"),
    [
        ("12+30", True),
        ("-3 - -4", True),
        ("2**3", True),
        ("3\u00d74", True),
        ("7", True),
        ("1+2+3", False),
        ("(1+2)*3", False),
        ("2 ** 3 ** 2", False),
        ("1\n+2-3", False),
    ],
)
async def test_the_tool_computes_one_operation_per_call(expression: str, answered: bool):
    result = await make_env().tools[0].call({"expression": expression})

    assert (result.error is None) is answered
    assert answered or "at most 1 per call" in result.content


async def test_the_limit_on_operations_can_be_lifted():
    env = CalculatorEnv(max_operations_per_call=None)

    assert (await env.tools[0].call({"expression": "(1+2)*3-4"})).content == "5"


@pytest.mark.parametrize("levels", [(), (0,), (1, 9)])
def test_unknown_levels_are_refused(levels: tuple[int, ...]):
    with pytest.raises(ConfigError, match="levels"):
        CalculatorEnv(levels)


def test_unknown_splits_and_limits_are_refused():
    with pytest.raises(ConfigError, match="split"):
        make_env().tasks("test")
    with pytest.raises(ConfigError, match="max_operations_per_call"):
        CalculatorEnv(max_operations_per_call=0)
