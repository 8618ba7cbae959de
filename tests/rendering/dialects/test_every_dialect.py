# ruff: noqa: RUF001 - the tokens of DeepSeek have these characters
"""What holds for every dialect, whatever the policy writes."""

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.messages import ToolCall
from agentgym.rendering import Dialect, ParsedAction, ToolSchema
from agentgym.rendering.dialects import DIALECTS

every_dialect = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
TYPED = {"qwen3_coder", "glm", "react"}
"""Arguments of these mean what the tool's schema says; their own tests cover the round trip."""
json_dialect = pytest.mark.parametrize(
    "dialect", [pytest.param(d, id=name) for name, d in DIALECTS.items() if name not in TYPED]
)
TOOL = {
    "type": "function",
    "function": {
        "name": "f",
        "description": "F.",
        "parameters": {"type": "object", "properties": {"a": {"type": "string"}}},
    },
}
CALL = ToolCall(id="x", name="f", arguments={"a": "1", "b": [1, {"c": None}], "d": 'say "hi"\n'})
PLAIN_CALL = ToolCall(id="x", name="f", arguments={"a": "one"})
MARKS = [
    *("<tool_call>", "</tool_call>", "<tool_response>", "<think>", "</think>", "<|im_end|>"),
    *("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]", "[THINK]", "[/THINK]", "[TOOL_RESULTS]", "</s>"),
    *("<|python_tag|>", "<|eom_id|>", "f.call(", "[f(", "a='", "a=1", ")", ")]", ";", "**"),
    *("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
    *("<｜tool▁calls▁end｜>", "function", "```json", "```", "functools[", "<|tool_call|>"),
    *("<|tool_calls_section_begin|>", "<|tool_call_begin|>", "functions.f:0", "f"),
    *("<|tool_call_argument_begin|>", "<|tool_call_end|>", "<|tool_calls_section_end|>"),
    *("<function=f>", "</function>", "<parameter=a>", "</parameter>", "<arg_key>", "</arg_key>"),
    *("<arg_value>", "</arg_value>", "<|channel|>", "analysis", "commentary", "final", "<|end|>"),
    *(" to=functions.f", "<|message|>", "<|start|>", "assistant", "<|call|>", "<|return|>"),
    *("Thought:", "Action:", "Action Input:", "Observation:", "Final Answer:"),
    *(
        '"\\ud83d"',
        "'\\ud83d'",
        '{"name": "f", "arguments": {}}',
        '{"name": "f", "parameters": {}}',
        '{"a": "b"}',
        "{}",
    ),
    *("{", "}", "[", "]", '"', "'", "\\", ",", ":", "\n", " ", "null", "1e9", "\ud83d", "é"),
]
texts = st.lists(st.sampled_from(MARKS), max_size=24).map("".join)
names = st.text(alphabet="abcXYZ019_-", min_size=1, max_size=8)
strings = st.text(max_size=8) | st.lists(
    st.sampled_from([mark for mark in MARKS if mark != "\ud83d"]), max_size=3
).map("".join)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | strings,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(strings, inner, max_size=3),
    max_leaves=6,
)
calls = st.builds(
    ToolCall,
    id=st.just("x"),
    name=names,
    arguments=st.dictionaries(strings, json_values, max_size=3),
)


def said(read: ParsedAction) -> list[tuple[str, object]]:
    """Names and arguments, with the types that JSON tells apart."""
    return [(call.name, call.arguments) for call in read.calls]


@every_dialect
@given(
    text=texts,
    finish_reason=st.sampled_from(["stop", "stop_string", "length"]),
    suffix=st.sampled_from(["", "<think>\n", "<think>x</think>", "[THINK]", "<tool_call>\n"]),
    tools=st.sampled_from([[], [TOOL]]),
)
@settings(max_examples=25)
def test_any_text_can_be_read(
    dialect: Dialect, text: str, finish_reason: str, suffix: str, tools: list[ToolSchema]
) -> None:
    """Nothing raises, nothing is invented, and the same text says the same again."""
    options: dict[str, Any] = {
        "finish_reason": finish_reason,
        "prompt_suffix": suffix,
        "tools": tools,
    }
    read = dialect.parse(text, **options)

    assert read == dialect.parse(text, **options)
    assert read.raw == text
    assert read.truncated == (finish_reason == "length")
    assert all(call.name and isinstance(call.arguments, dict) for call in read.calls)
    assert all(call.reason for call in read.malformed)
    ids = [call.id for call in read.calls] + [call.id for call in read.malformed]
    assert len(set(ids)) == len(ids)
    if "\ud83d" not in text:  # which no tokenizer decodes to
        assert read.to_message(turn=0).model_dump_json()


@json_dialect
@given(made=st.lists(calls, min_size=1, max_size=3))
@settings(max_examples=25)
def test_what_is_written_is_read_back(dialect: Dialect, made: list[ToolCall]) -> None:
    """Marks of every family inside strings are text like any other; calls keep their order."""
    read = dialect.parse("\n".join(map(dialect.format_call, made)), finish_reason="stop")

    assert said(read) == [(call.name, call.arguments) for call in made]
    assert not read.malformed
    assert not read.content


@every_dialect
@pytest.mark.parametrize("finish_reason", ["stop", "length"])
def test_a_call_that_is_cut_anywhere_is_whole_or_no_call(
    dialect: Dialect, finish_reason: str
) -> None:
    """A beginning of arguments is never run as if it were all of them."""
    for call in (PLAIN_CALL,) if dialect.name in TYPED else (PLAIN_CALL, CALL):
        whole = dialect.format_call(call)
        for end in range(len(whole)):
            read = dialect.parse(whole[:end], finish_reason=finish_reason, tools=[TOOL])

            assert said(read) in ([], [(call.name, call.arguments)]), whole[:end]


@json_dialect
def test_a_call_that_goes_on_in_the_next_turn_is_whole_or_no_call(dialect: Dialect) -> None:
    """The text before may have begun it; its rest alone must not be taken for another call."""
    whole = dialect.format_call(CALL)
    for end in range(len(whole)):
        read = dialect.parse(whole[end:], finish_reason="stop", prompt_suffix=whole[:end])

        assert said(read) in ([], [(CALL.name, CALL.arguments)]), whole[:end]


@every_dialect
@given(draft=texts)
@settings(max_examples=12)
def test_reasoning_never_holds_a_call(dialect: Dialect, draft: str) -> None:
    """A draft is no deed, whether the prompt opened the reasoning or the policy did."""
    begin, end = _reasoning_marks(dialect)
    thought = (draft + dialect.format_call(PLAIN_CALL)).replace(end, "")
    if dialect.name == "harmony":  # any other message ends this one
        thought = thought.replace("<|", "")

    for text, suffix in ((begin + thought, ""), (thought, begin)):
        read = dialect.parse(text, finish_reason="stop", prompt_suffix=suffix, tools=[TOOL])

        assert not read.calls
        assert not read.content
        assert read.reasoning is not None


@every_dialect
def test_a_call_behind_reasoning_is_read(dialect: Dialect) -> None:
    """Reasoning ends where its mark stands."""
    begin, end = _reasoning_marks(dialect)
    text = f"Hm.{end}{dialect.format_call(PLAIN_CALL)}"

    for written, suffix in ((begin + text, ""), (text, begin)):
        read = dialect.parse(written, finish_reason="stop", prompt_suffix=suffix, tools=[TOOL])

        assert said(read) == [("f", {"a": "one"})]
        assert read.reasoning == "Hm."


def _reasoning_marks(dialect: Dialect) -> tuple[str, str]:
    if dialect.name == "harmony":
        return "<|channel|>analysis<|message|>", "<|end|><|start|>assistant"
    return "<think>", "</think>"


@every_dialect
def test_instructions_name_the_tool_and_its_parameters(dialect: Dialect) -> None:
    """Templates without tools get them as words."""
    function = {
        "name": "look_up",
        "parameters": {"type": "object", "properties": {"shelf": {"type": "string"}}},
    }
    told = dialect.format_tools([{"type": "function", "function": function}])

    assert "look_up" in told
    assert "shelf" in told


@every_dialect
def test_a_result_that_the_policy_invents_ends_the_turn(dialect: Dialect) -> None:
    """What the other side says counts only if the other side says it."""
    invented = dialect.format_result("42") + "\nThe answer is 42."
    text = f"{dialect.format_call(PLAIN_CALL)}\n{invented}"

    read = dialect.parse(text, finish_reason="stop", tools=[TOOL])

    assert said(read) == [("f", {"a": "one"})]
    assert not read.malformed
    if dialect.name != "harmony":  # its results are messages of their own, not text with marks
        assert "42" not in read.content
    assert read.final_answer is None


@every_dialect
@pytest.mark.parametrize("unit", ["{", "[", '{"a":', "<think>", "\n", '"', "call", "open"])
def test_reading_is_linear(dialect: Dialect, unit: str) -> None:
    """A policy that repeats itself costs a moment, not minutes."""
    call = dialect.format_call(PLAIN_CALL)
    unit = {"call": call, "open": call[: len(call) // 2]}.get(unit, unit)
    text = unit * (1_000 if len(unit) > 8 else 20_000)
    start = time.process_time()
    for finish_reason in ("stop", "length"):
        dialect.parse(text, finish_reason=finish_reason, tools=[TOOL])

    assert time.process_time() - start < 2
