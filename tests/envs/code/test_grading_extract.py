"""The program in a message: the last block of the language, and nothing that is none."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.envs.code.formats import assembled
from agentgym.envs.code.grading import CallTest, extract_program
from agentgym.envs.code.grading.fitting import fitted
from agentgym.errors import ConfigError

ONE = "```python\nprint(1)\n```"
TWO = "```py\nprint(2)\n```"


@pytest.mark.parametrize(
    ("message", "program"),
    [
        (ONE, "print(1)\n"),
        (f"First {ONE[:0]}\n{ONE}\nthen\n{TWO}\nDone.", "print(2)\n"),
        ("```\nprint(3)\n```", "print(3)\n"),
        (f"{ONE}\nIt prints:\n```\n1\n```", "print(1)\n"),
        ("1. So:\n   ```python\n   if 1:\n       print(1)\n   ```", "if 1:\n    print(1)\n"),
        ("- a\n  - b\n\n      ```py\n      print(7)\n      ```", "print(7)\n"),
        (
            '```py\ndef f():\n    """\n    ```\n    """\n```',
            'def f():\n    """\n    ```\n    """\n',
        ),
        (f"<answer>{ONE}</answer>", "print(1)\n"),
        (f"<think>a</think><answer>{TWO}\n</answer>", "print(2)\n"),
        (f"\ufeff{ONE}", "print(1)\n"),
        ("\ufeffprint(8)", "print(8)"),
        ("```python\r\nprint(9)\r\n```\r\n", "print(9)\r\n"),
        ("```py\nprint('a\x0cb')\n```", "print('a\x0cb')\n"),
        ("    return 2 * x", "    return 2 * x"),
        ("  indented words", None),
        ("  yes, no", None),
        (f"{ONE}\n```cpp\nint main();\n```", "print(1)\n"),
        ("```cpp\nint main();\n```", None),
        ("~~~python\nprint(4)\n~~~", "print(4)\n"),
        ("````python\nprint('''\n```\n''')\n````", "print('''\n```\n''')\n"),
        ("```python\nprint(5)", None),
        (f"<think>\n{ONE}\n</think>\nI do not know.", None),
        (f"<think>\n{ONE}\n</think>\n{TWO}", "print(2)\n"),
        (f"<think>\n{ONE}", None),
        ("print(6)", "print(6)"),
        ("import os\n\ndef f(x):\n    return x\n", "import os\n\ndef f(x):\n    return x\n"),
        ("Sorry", None),
        ("I cannot do that.", None),
        ("yes, no", None),
        ("x: int", None),
        ("42", None),
        ("", None),
        (None, None),
        ("\0", None),
    ],
)
def test_programs_are_found(message: str | None, program: str | None):
    """Thoughts, other languages, cut blocks and prose are no programs."""
    assert extract_program(message) == program


@given(st.text("`~ \npython(1)'x<>think/"))
def test_any_message_is_read(message: str):
    """Whatever a policy says."""
    program = extract_program(message)

    assert program is None or all(line in message for line in program.splitlines())


@pytest.mark.parametrize("message", ["(" * 90_000, "-" * 90_000 + "1", "a" + ".b" * 40_000])
def test_parsing_is_bounded(message: str):
    """Text that is made to break the parser is no program."""
    assert extract_program(message) is None


def test_an_unknown_language_is_not_taken_for_python():
    """Else every answer in it would silently score 0."""
    with pytest.raises(ConfigError, match="'brainfuck' cannot be run; known: python"):
        extract_program("```brainfuck\n+\n```", language="brainfuck")


@pytest.mark.parametrize(
    "text",
    [
        "import " * 30_000,
        " " * 200_000 + "x`",
        "```" + " " * 200_000 + "x`",
        "\n" * 200_000,
        "f " * 100_000,
        "~" * 200_000,
    ],
)
@pytest.mark.parametrize("function", ["f", "Solution.f"])
def test_no_text_takes_long_to_be_read(text: str, function: str):
    """This is done in the process that trains, where a policy must not be able to stop it."""
    start = time.process_time()

    extract_program(text)
    fitted(CallTest(function=function, expected=1), text)
    assembled(text, preamble="def f(x):\n", entry="f")
    assembled(text, preamble="import os\n")
    assert time.process_time() - start < 2
