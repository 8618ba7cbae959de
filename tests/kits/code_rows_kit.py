"""One row of each of the common data sets of programs, as their publishers write it."""

import base64
import json
import pickle
import zlib
from typing import Any

ADD = "a, b = map(int, input().split())\nprint(a + b)\n"
CASES = [{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}]
PACKED = base64.b64encode(zlib.compress(pickle.dumps(json.dumps(CASES)))).decode()
PROMPT = (
    "from typing import List\n\n\ndef twice(x: int) -> int:\n    return 2 * x\n\n\n"
    'def total(xs: List[int]) -> int:\n    """ Twice the sum.\n    >>> total([1, 2])\n'
    '    6\n    """\n'
)
HUMANEVAL = {
    "task_id": "HumanEval/1000",
    "prompt": PROMPT,
    "entry_point": "total",
    "canonical_solution": "    return twice(sum(xs))\n",
    "test": "\n\nMETADATA = {'author': 'x'}\n\n\ndef check(candidate):\n"
    "    assert candidate([1, 2]) == 6\n    assert candidate([]) == twice(0), 'empty'\n",
}
MBPP = {
    "task_id": 7,
    "text": "Write a function to add.",
    "code": "def sum(a, b):\r\n  return a + b",
    "test_setup_code": "",
    "test_list": ["assert sum(1, 2) == 3", "assert sum(0, 0) == 0"],
    "challenge_test_list": ["assert sum(-1, 1) == 0"],
}
ROWS: dict[str, dict[str, Any]] = {
    "apps": {
        "problem_id": 3,
        "question": "Add.",
        "solutions": json.dumps([ADD]),
        "input_output": json.dumps({"inputs": ["1 2\n", ["3 4"]], "outputs": ["3\n", ["7", ""]]}),
        "starter_code": "",
    },
    "apps by function": {
        "question": "Add.",
        "solutions": json.dumps(["def add(a, b):\n    return a + b"]),
        "input_output": json.dumps({"fn_name": "add", "inputs": [[1, 2]], "outputs": [[3]]}),
    },
    "taco by class": {
        "question": "Add.",
        "starter_code": "class Solution:\n    def add(self, a, b):\n",
        "solutions": ["class Solution:\n    def add(self, a, b):\n        return a + b"],
        "input_output": {"fn_name": "add", "inputs": [[1, 2], [3, 4]], "outputs": [3, 7]},
    },
    "livecodebench": {
        "question_id": "abc_1",
        "question_title": "Sum",
        "question_content": "Add.",
        "platform": "atcoder",
        "starter_code": "",
        "public_test_cases": json.dumps(CASES),
        "private_test_cases": PACKED,
        "metadata": "{}",
    },
    "livecodebench by class": {
        "question_id": "lc_1",
        "question_title": "",
        "question_content": "Add.",
        "starter_code": "class Solution:\n    def add(self, a, b):\n",
        "public_test_cases": json.dumps(
            [{"input": "[1, 2]\n3", "output": "[1, 2, 3]", "testtype": "functional"}]
        ),
        "private_test_cases": "[]",
        "metadata": json.dumps({"func_name": "add"}),
    },
    "open-r1": {
        "problem_id": "v1",
        "problem": "Add.",
        "gold_standard_solution": ADD,
        "verification_info": {
            "language": "python",
            "test_cases": [
                {"fn_name": None, "input": "1 2\n", "output": "3\n", "type": "stdin_stdout"}
            ],
        },
    },
    "open-r1 by function, as text": {
        "prompt": [{"role": "user", "content": "Add."}],
        "verification_info": repr(
            {
                "language": "python",
                "test_cases": [
                    {"fn_name": "add", "input": "[1, 2]", "output": "[3]", "type": "function_call"}
                ],
            }
        ),
        "solution": "def add(a, b):\n    return a + b",
    },
    "mbpp": MBPP,
    "mbpp sanitised": {
        "task_id": 8,
        "prompt": "Write a function to add.",
        "code": "def add(a, b):\n    return a + b",
        "test_imports": ["import math"],
        "test_list": ["assert math.isclose(add(1, 2), 3)"],
    },
    "humaneval": HUMANEVAL,
    "code contests": {
        "name": "1_A",
        "description": "Add.",
        "public_tests": {"input": ["1 2\n"], "output": ["3\n"]},
        "private_tests": {"input": [], "output": []},
        "generated_tests": {"input": ["3 4\n"], "output": ["7\n"]},
        "solutions": {"language": [2, 3], "solution": ["int main();", ADD]},
    },
    "inputs and outputs": {
        "prompt": "Add.",
        "inputs": ["1 2"],
        "outputs": ["3"],
        "solution": ADD,
    },
    "tests": {
        "id": "p",
        "statement": "Add.",
        "tests": [{"stdin": "1 2", "expected": "3"}, {"input": "3 4", "output": "7"}],
        "solution": ADD,
    },
    "tests of a function": {
        "question": "Add.",
        "entry_point": "add",
        "tests": json.dumps(
            [
                {"args": [1, 2], "expected": 3},
                {"args": [1], "kwargs": {"b": 2}, "expected": 3},
                {"args": [1], "raises": "TypeError"},
                "assert add(3, 4) == 7",
                {"setup": "x = 3", "assert": "assert add(x, 4) == 7"},
            ]
        ),
        "solution": "def add(a, b):\n    return a + b",
    },
    "its own form": {
        "statement": "Add.",
        "hidden_tests": [{"kind": "stdio", "stdin": "1 2", "expected": "3"}],
        "solution": ADD,
    },
    "one pair": {"question": "Add.", "stdin": "1 2", "expected": "3", "solution": ADD},
}
SOLUTIONS = {
    "livecodebench": ADD,
    "livecodebench by class": "class Solution:\n    def add(self, a, b):\n        return a + [b]",
}
