"""The bundled problems: solvable, told apart from likely mistakes, and worth learning from."""

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import cache
from random import Random

import pytest

from agentgym.envs.code.bank.base import NUM_PUBLIC, Sketch, Variant, run_trusted, vary
from agentgym.envs.code.grading.tests import read_tests
from agentgym.envs.code.problems import LEVELS, bank, checked, data_of, draw, of_level
from agentgym.envs.levels import SPLITS, leveled_tasks
from agentgym.errors import ConfigError

SKETCHES = {sketch.name: sketch for sketch in bank()}
every_problem = pytest.mark.parametrize("name", SKETCHES)
SEEDS = range(3)
_RUN_ALL = """
import io, json, sys
for source, tests in json.load(sys.stdin):
    for test in tests:
        names = {"__name__": "__main__"}
        sys.stdin, out, sys.stdout = io.StringIO(test.get("stdin", "")), sys.stdout, io.StringIO()
        try:
            exec(source, names)
        finally:
            said, sys.stdout = sys.stdout.getvalue(), out
        if test["kind"] == "stdio":
            assert said == test["expected"], (source, test, said)
        else:
            value = names[test["function"]](*test["args"])
            assert json.dumps(value) == json.dumps(test["expected"]), (source, test, value)
"""


@cache
def variants(name: str) -> list[Variant]:
    return [vary(SKETCHES[name], Random(f"{name}/{seed}")) for seed in SEEDS]


def share_right(variant: Variant, source: str) -> float:
    """Of the hidden tests; a source of this package, so that it may run here."""
    core = source.split("\n\nimport sys\n")[0] if variant.sketch.kind == "program" else source
    right = []
    for given, expected in zip(variant.inputs, variant.expected, strict=True):
        try:
            value = run_trusted(
                variant.sketch.kind, core, variant.entry, json.loads(json.dumps(given))
            )
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError):
            value = AttributeError
        right.append(value == expected)
    hidden = right[NUM_PUBLIC:]
    return sum(hidden) / len(hidden)


def test_there_are_enough_of_every_kind_and_level():
    kinds = Counter(sketch.kind for sketch in bank())

    assert len(bank()) >= 60
    assert all(len(of_level(level)) >= 10 for level in LEVELS)
    assert min(kinds[kind] for kind in ("function", "program", "class")) >= 8


def test_every_solution_gives_what_is_expected_in_a_process_of_its_own():
    """What is expected is worked out in this process; each answer is run as a whole program."""
    batch = []
    for name in SKETCHES:
        for variant in variants(name)[:2]:
            data = data_of(variant)
            batch.append(
                [data["solution"] + data["harness"], data["public_tests"] + data["hidden_tests"]]
            )
    done = subprocess.run(
        [sys.executable, "-c", _RUN_ALL], input=json.dumps(batch), capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr[-2000:]


@every_problem
def test_a_likely_mistake_is_found(name: str):
    """By some hidden test, whatever the constants."""
    scores = [share_right(variant, variant.wrong) for variant in variants(name)]

    assert max(scores) < 0.95
    assert sum(scores) / len(scores) <= 0.8


@every_problem
def test_no_single_answer_is_right_often(name: str):
    """A constant, and a table of the public tests, must earn little."""
    for variant in variants(name):
        hidden = [json.dumps(value) for value in variant.expected[NUM_PUBLIC:]]
        assert Counter(hidden).most_common(1)[0][1] <= 0.67 * len(hidden)
        public = [repr(given) for given in variant.inputs[:NUM_PUBLIC]]
        assert not set(public) & {repr(given) for given in variant.inputs[NUM_PUBLIC:]}


@pytest.mark.parametrize("name", [name for name, sketch in SKETCHES.items() if sketch.hack])
def test_short_cuts_earn_at_most_half(name: str):
    """Problems with few possible answers are where guessing pays most."""
    scores = [share_right(variant, variant.hack or "") for variant in variants(name)]

    assert max(scores) <= 0.5


@every_problem
def test_tests_survive_json_and_are_as_many_as_promised(name: str):
    data = data_of(variants(name)[0])

    assert json.loads(json.dumps(data)) == data
    assert len(read_tests(data["public_tests"])) == NUM_PUBLIC
    assert 5 <= len(read_tests(data["hidden_tests"])) <= 12
    assert "$" not in data["statement"] + data["solution"]


@pytest.mark.parametrize("level", LEVELS)
def test_no_problem_is_in_both_splits(level: int):
    """The same problem with the same constants, whatever its name and inputs."""
    seen = {split: set() for split in SPLITS}
    for split in SPLITS:
        tasks = leveled_tasks(draw, split=split, levels=[level])
        for index in range(80):
            task = tasks[index]
            seen[split].add((task["problem"], constants_of(task["statement"], task["problem"])))

    assert not seen["train"] & seen["eval"]
    assert len(seen["eval"]) >= 5


def constants_of(statement: str, name: str) -> str:
    """The statement without the name that was drawn for the function."""
    for entry in SKETCHES[name].entries:
        statement = statement.replace(f"`{entry}(", "`f(")
    return statement


@pytest.mark.parametrize("index", [0, 1, 17, 2**31 - 1])
def test_the_same_index_is_the_same_task(index: int):
    first, again = (leveled_tasks(draw, split="train", levels=tuple(LEVELS))[index] for _ in "ab")

    assert first == again
    assert first["level"] == 1 + index % len(LEVELS)


GOOD = SKETCHES["times"]


@pytest.mark.parametrize(
    ("sketches", "message"),
    [
        ((GOOD, GOOD), "comes twice"),
        ((replace(GOOD, level=9),), "level 9"),
        ((replace(GOOD, statement=" "),), "needs a statement"),
        ((replace(GOOD, wrong=GOOD.solution),), "wrong solution"),
    ],
)
def test_a_bank_with_faults_is_refused(sketches: tuple[Sketch, ...], message: str):
    with pytest.raises(ConfigError, match=message):
        checked(sketches)


@pytest.mark.parametrize(
    ("sketch", "message"),
    [
        (replace(GOOD, solution="def $f(x):\n    return x * $missing"), "bad template"),
        (replace(GOOD, inputs=lambda _, __: [[1], [2], [1], [2]]), "2 different inputs"),
    ],
)
def test_a_sketch_with_faults_is_refused(sketch: Sketch, message: str):
    with pytest.raises(ConfigError, match=message):
        vary(sketch, Random(0))
