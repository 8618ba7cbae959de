"""Rows of the common data sets become problems whose oracle passes and whose tests can fail."""

import base64
import json
import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest
from code_rows_kit import ADD, HUMANEVAL, MBPP, ROWS, SOLUTIONS

from agentgym.envs.code.formats import CodeProblem, assembled, problem_of, problems_of, read_file
from agentgym.envs.code.grading import AssertTest, CallTest, StdioTest, grade
from agentgym.errors import ConfigError
from agentgym.tools.sandbox.base import SandboxProvider

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def share(provider: SandboxProvider, problem: CodeProblem, program: str) -> float:
    whole = assembled(program, preamble=problem.preamble, entry=problem.entry)
    return (await grade(provider, whole, problem.hidden_tests)).fraction


@pytest.mark.parametrize("name", ROWS)
async def test_the_oracle_passes_and_an_empty_program_does_not(
    provider: SandboxProvider, name: str
):
    """The format is found by its keys, and what it says is what is graded."""
    problem = problem_of(ROWS[name], index=5)
    solution = problem.solution or SOLUTIONS[name]

    assert problem.statement.strip().endswith('"""' if name == "humaneval" else ("Add.", "add."))
    assert await share(provider, problem, solution) == 1.0
    assert await share(provider, problem, "    pass\n" if problem.entry else "pass") == 0.0
    assert CodeProblem.model_validate_json(problem.model_dump_json()) == problem


async def test_ids_are_those_of_the_rows_or_their_index():
    """An id of 0 is one."""
    assert problem_of(ROWS["apps"]).id == "3"
    assert problem_of(ROWS["apps by function"], index=5).id == "5"
    assert problem_of({**ROWS["apps"], "problem_id": 0}, index=5).id == "0"


async def test_tests_are_of_the_kind_the_row_says():
    """Programs, functions, methods and asserts."""
    assert problem_of(ROWS["apps"]).hidden_tests == (
        StdioTest(stdin="1 2\n", expected="3\n"),
        StdioTest(stdin="3 4", expected="7\n"),
    )
    assert problem_of(ROWS["apps by function"]).hidden_tests == (
        CallTest(function="add", args=(1, 2), expected=3, alternatives=([3],)),
    )
    assert problem_of(ROWS["taco by class"]).hidden_tests[0] == CallTest(
        function="Solution.add", args=(1, 2), expected=3
    )
    assert problem_of(ROWS["livecodebench by class"]).hidden_tests == (
        CallTest(function="Solution.add", args=([1, 2], 3), expected=[1, 2, 3]),
    )
    mbpp = problem_of(MBPP)
    assert len(mbpp.public_tests) == 2
    assert len(mbpp.hidden_tests) == 3
    assert mbpp.hidden_tests[0] == AssertTest(source="assert sum(1, 2) == 3", functions=("sum",))


@pytest.mark.parametrize(
    "program",
    [
        HUMANEVAL["canonical_solution"],
        "def total(xs):\n    return sum(map(twice, xs))",
        "from typing import List\n\ndef total(xs: List[int]) -> int:\n    return 2 * sum(xs)",
        "return twice(sum(xs))",
        "both = sum(xs)\n    if not xs:\n        return 0\n    return twice(both)\n",
        "both = sum(xs)\nif not xs:\n    return 0\nreturn twice(both)\n",
        "total = lambda xs: twice(sum(xs))",
        "from __future__ import annotations\n\ndef total(xs: Any) -> int:\n    return 2 * sum(xs)",
    ],
)
async def test_a_prompt_is_completed_or_written_anew(provider: SandboxProvider, program: str):
    """Models answer HumanEval in both ways, and use its helpers in either."""
    assert await share(provider, problem_of(HUMANEVAL), program) == 1.0


LEETCODE = "class Solution:\n    def add(self, xs: List[int]) -> int:\n        return sum(xs)\n"


@pytest.mark.parametrize(
    ("program", "passed"),
    [
        (LEETCODE, 1.0),
        (f"from __future__ import annotations\n{LEETCODE}", 1.0),
        (LEETCODE.replace("sum(xs)", "sum(accumulate(xs))"), 0.0),
        ("def add(xs):\n    return sum(xs)", 1.0),
    ],
)
async def test_a_class_may_use_what_its_head_takes_for_granted(
    provider: SandboxProvider, program: str, passed: float
):
    """The heads that such data sets give name `List` and import nothing."""
    row = {
        "question_content": "Add.",
        "public_test_cases": [{"input": "[1, 2]", "output": "3", "testtype": "functional"}],
        "starter_code": LEETCODE.rpartition(" " * 8)[0],
        "metadata": json.dumps({"func_name": "add"}),
    }

    assert await share(provider, problem_of(row), program) == passed


@pytest.mark.parametrize(
    "row",
    [
        {"tests": [{"input": "3", "output": "9", "testtype": "functional",
                    "metadata": {"func_name": "f"}}]},
        {"tests": json.dumps([{"input": "[3]", "output": "9", "type": "function_call"}]),
         "fn_name": "g"},
        {"entry": "f", "tests": [{"input": [3], "output": 9}]},
        {"test": "from solution import f\n\ndef test():\n    assert f(3) == 9\n"},
        {"tests": "from solution import f\n\ndef test():\n    assert f(3) == 9\n"},
    ],
)  # fmt: skip
async def test_calls_and_code_are_told_from_inputs(provider: SandboxProvider, row: dict[str, Any]):
    """Else no program could pass, and nobody would be told."""
    problem = problem_of({"question": "Square.", **row})
    program = "def f(x):\n    return x * x\n\ndef g(xs):\n    return xs[0] ** 2\n"

    assert await share(provider, problem, program) == 1.0
    assert await share(provider, problem, "def f(x):\n    return 8") == 0.0


async def test_cells_may_be_json_in_json():
    """As some exports of these data sets have them."""
    given = {"fn_name": "f", "inputs": [["1"]], "outputs": ["2"]}
    row = {"question": "x", "input_output": json.dumps(json.dumps(given))}
    cases = json.dumps(json.dumps([{"input": "1", "output": "2"}]))

    apps = problem_of(row).hidden_tests
    verifiable = problem_of({"question": "x", "verification_info": {"test_cases": cases}})
    assert apps == (CallTest(function="f", args=("1",), expected="2"),)
    assert verifiable.hidden_tests == (StdioTest(stdin="1", expected="2"),)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"a": 1, "b": 2}, "keys 'a', 'b' is in no known format; known: livecodebench"),
        ({}, "keys none"),
        ({**ROWS["apps"], "input_output": "{"}, r"row 4 \(format apps\): input_output is no JSON"),
        ({**ROWS["apps"], "input_output": '{"inputs": ["1"], "outputs": []}'}, "1 inputs but 0"),
        ({**ROWS["apps"], "input_output": '{"inputs": [], "outputs": []}'}, "has no tests"),
        ({**ROWS["apps"], "question": None}, "no statement"),
        (
            {**ROWS["open-r1"], "verification_info": {"language": "rust", "test_cases": []}},
            "language 'rust' cannot be run",
        ),
        ({**ROWS["open-r1"], "verification_info": {"test_cases": []}}, "has no tests"),
        ({**ROWS["livecodebench"], "private_test_cases": "%%%"}, "cannot be read"),
        ({**ROWS["livecodebench by class"], "metadata": "{}"}, "needs metadata.func_name"),
        ({**MBPP, "test_list": []} | {"challenge_test_list": []}, "has no tests"),
        ({**MBPP, "text": None}, "no text or prompt"),
        ({"question": "x", "tests": [{"in": 1, "out": 2}]}, "keys 'in', 'out'"),
        ({"question": "x", "tests": [3]}, "a test is a int"),
        ({"question": "x", "tests": [{"kind": "stdio"}]}, "expected: Field required"),
        ({**ROWS["apps by function"], "input_output": {"fn_name": "f", "inputs": [1],
          "outputs": [1]}}, "arguments of f are no list"),
    ],
)  # fmt: skip
async def test_rows_of_no_known_form_are_refused(row: dict[str, Any], words: str):
    """With the keys, the row and the format, in one line."""
    with pytest.raises(ConfigError, match=words) as caught:
        problem_of(row, index=4)

    assert "\n" not in str(caught.value)


async def test_an_unknown_format_is_refused():
    """By name."""
    with pytest.raises(ConfigError, match="format 'appps' is not known; known: livecodebench"):
        problem_of(ROWS["apps"], format="appps")


class _Attack:
    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("unpickled",))


async def test_packed_tests_cannot_run_code(capsys: pytest.CaptureFixture[str]):
    """LiveCodeBench pickles its tests; a data set is no program."""
    packed = base64.b64encode(zlib.compress(pickle.dumps(_Attack()))).decode()

    with pytest.raises(ConfigError, match=r"holds a builtins\.print"):
        problem_of({**ROWS["livecodebench"], "private_test_cases": packed})
    assert "unpickled" not in capsys.readouterr().out


async def test_a_solution_in_a_fence_is_its_program():
    """As PrimeIntellect's come; else every oracle's answer would be a fence in a fence."""
    row = {**ROWS["open-r1"], "gold_standard_solution": f"```python\n{ADD.rstrip()}\n```"}

    assert problem_of(row).solution.rstrip() == ADD.rstrip()


async def test_a_row_whose_tests_are_empty_has_none():
    """Its keys are no test's, so it is not told that they are no known form of one."""
    with pytest.raises(ConfigError, match="problem '0' has no tests"):
        problem_of({"statement": "S", "public_tests": [], "hidden_tests": []})


async def test_two_problems_of_one_id_are_refused():
    """One would hide the other."""
    with pytest.raises(ConfigError, match="two problems have the id '3'"):
        problems_of([ROWS["apps"], ROWS["apps"]])


async def test_files_are_read(tmp_path: Path):
    """Lines, lists and parquet give the same problems; rows may be of different formats."""
    rows = [ROWS["apps"], ROWS["mbpp"], ROWS["tests"]]
    lines = tmp_path / "a.jsonl"
    lines.write_text("\n".join(map(json.dumps, rows)) + "\n\n", encoding="utf-8")
    listed = tmp_path / "a.json"
    listed.write_text(json.dumps({"data": rows}), encoding="utf-8")

    assert read_file(lines) == read_file(listed) == problems_of(rows)


async def test_parquet_is_read(tmp_path: Path):
    """As the hub stores data sets."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.Table.from_pylist([MBPP, {**MBPP, "task_id": 9}]), path)

    assert [problem.id for problem in read_file(path)] == ["7", "9"]
    assert read_file(path)[0] == problem_of(MBPP)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.jsonl", '{"a": 1}\n{', "a.jsonl:2 is no JSON"),
        ("a.jsonl", "[1]", "a.jsonl:1 is a list"),
        ("a.json", "3", "holds no list"),
        ("a.json", "{", "is no JSON"),
        ("a.csv", "a,b", "ends in .jsonl, .json, .parquet"),
        ("a.parquet", "no", "is no parquet file"),
    ],
)
async def test_files_of_no_known_form_are_refused(tmp_path: Path, name: str, text: str, words: str):
    """With the file, and the line where there is one."""
    (tmp_path / name).write_text(text, encoding="utf-8")

    with pytest.raises(ConfigError, match=words):
        read_file(tmp_path / name)


async def test_a_file_that_is_no_text_is_said(tmp_path: Path):
    """By its name, not by Python's exception alone."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\x80\n")

    with pytest.raises(ConfigError, match=r"a\.jsonl cannot be read: 'utf-8'"):
        read_file(path)


async def test_a_missing_file_is_said(tmp_path: Path):
    """By its path."""
    with pytest.raises(ConfigError, match="there is no file"):
        read_file(tmp_path / "none.jsonl")
