"""The Hermes dialect never raises, never invents a call and is linear."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.messages import ToolCall
from agentgym.rendering import dialect

HERMES = dialect("hermes")
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=5,
)
calls = st.builds(
    ToolCall,
    id=st.just("x"),
    name=st.text(alphabet="abc_", min_size=1, max_size=6),
    arguments=st.dictionaries(st.text(max_size=6), json_values, max_size=3),
)
fragments = st.sampled_from(
    [
        "<tool_call>",
        "</tool_call>",
        "\n",
        '{"name": "f", "arguments": {}}',
        "<think>",
        "</think>",
        "<tool_response>",
        "{",
        '"',
        "text",
        "[",
        "<|im_end|>",
        "\\",
        "null",
    ]
)


@given(st.lists(calls, min_size=1, max_size=3), st.text(alphabet="ab \n", max_size=10))
def test_what_is_written_is_read_back(made: list[ToolCall], words: str):
    """Formatting then parsing is the identity on names and arguments, tags in strings included."""
    text = words + "\n".join(map(HERMES.format_call, made))

    read = HERMES.parse(text, finish_reason="stop")

    assert [(c.name, c.arguments) for c in read.calls] == [(c.name, c.arguments) for c in made]
    assert read.content == words.strip()
    assert not read.malformed


@given(st.lists(fragments, max_size=30).map("".join), st.sampled_from(["stop", "length"]))
def test_any_text_parses_and_only_whole_calls_come_out(text: str, finish_reason: str):
    """Whatever the policy writes, a call is one that stands there complete."""
    read = HERMES.parse(text, finish_reason=finish_reason)

    assert all(call.name == "f" and call.arguments == {} for call in read.calls)
    assert read.raw == text
    assert len({c.id for c in (*read.calls, *read.malformed)}) == len(read.calls + read.malformed)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('<tool_call>\n{"name": "f", "arguments": [1]}\n</tool_call>', "must be a JSON object"),
        ('<tool_call>\n{"name": "f", "arguments": "{} x"}\n</tool_call>', "text after"),
        ('<tool_call>\n{"name": 3, "arguments": {}}\n</tool_call>', 'no "name"'),
        ("<tool_call>\n{oops}\n</tool_call>", "not valid JSON"),
        ("<tool_call></tool_call>", "empty"),
    ],
)
def test_a_malformed_call_says_why(text: str, reason: str):
    """The model can only mend what it is told."""
    read = HERMES.parse(text, finish_reason="stop")

    assert not read.calls
    assert reason in read.malformed[0].reason


def test_a_valid_call_beside_a_broken_one_is_kept():
    """One slip costs one call."""
    good = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    broken = "<tool_call>\n{oops\n"

    for text in (good + "\n" + broken, broken + good, broken + "</tool_call>" + good):
        read = HERMES.parse(text, finish_reason="stop")

        assert (len(read.calls), len(read.malformed)) == (1, 1), text


def test_a_call_cut_by_length_is_never_closed():
    """A complete object may still be the beginning of a longer one."""
    text = '<tool_call>\n{"name": "f", "arguments": {}}'

    cut = HERMES.parse(text, finish_reason="length")
    done = HERMES.parse(text, finish_reason="stop")

    assert (len(cut.calls), len(cut.malformed), cut.truncated) == (0, 1, True)
    assert (len(done.calls), len(done.malformed), done.truncated) == (1, 0, False)


@pytest.mark.parametrize(
    "unit",
    [
        "<tool_call>",
        "\n<tool_call>",
        "<think>",
        "[",
        '<tool_call>{"a',
        "</tool_call>",
        "<tool_call>[</tool_call>",
        '\n<tool_call>{"name": "f", "arguments": "[',
        "<tool_response>",
    ],
)
def test_parsing_is_linear(unit: str):
    """A policy that repeats itself 50,000 times costs seconds at most, not minutes."""
    start = time.perf_counter()
    HERMES.parse(unit * 50_000, finish_reason="stop")
    HERMES.parse(unit * 50_000 + "x", finish_reason="stop")

    assert time.perf_counter() - start < 5


def test_tool_instructions_name_every_tool():
    """Templates without tools get them as words."""
    tool = {"type": "function", "function": {"name": "add", "parameters": {}}}

    assert json.dumps(tool["function"]) in HERMES.format_tools([tool])
