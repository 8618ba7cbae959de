"""A call that cannot be run says why, in words that name what to mend."""

import pytest

from agentgym.rendering import dialect

TOOL = {
    "type": "function",
    "function": {"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}},
}
KIMI = "<|tool_calls_section_begin|><|tool_call_begin|>{}<|tool_call_argument_begin|>{}"
DEEPSEEK = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{}<｜tool▁sep｜>{}"  # noqa: RUF001


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        (
            "hermes",
            '<tool_call>{"name": "f", "arguments": {"a": 1 2}}</tool_call>',
            "at character 35, before '2}}",
        ),
        ("hermes", '<tool_call>{"name": "f"}</tool_call>', 'call of f has no "arguments"'),
        ("hermes", '<tool_call>{"name": "f", "arguments": [1]}</tool_call>', "of f must be"),
        ("mistral", "[TOOL_CALLS]f[ARGS]{'a': 1}", "double quotes"),
        ("mistral", "[TOOL_CALLS]", "followed by no call"),
        ("mistral", '[TOOL_CALLS][{"arguments": {}}]', 'no "name"'),
        ("llama3", "<|python_tag|>import os", "name(argument=value)"),
        ("llama3", "[f(1)]", "written as name=value"),
        ("llama3", '{"name": "f", "parameters": {"a": }}', "Expecting value"),
        ("phi4", "functools[1]", "must be a JSON object with name and arguments"),
        ("kimi", KIMI.format("call_1", '{"a": 1}'), "functions.NAME:INDEX"),
        ("kimi", KIMI.format("functions.f:0", "{} x"), "text after the JSON object"),
        ("kimi", "<|tool_calls_section_begin|>", "holds no call"),
        ("deepseek_v31", DEEPSEEK.format("", '{"a": 1}'), "has no name"),
        ("deepseek_v31", DEEPSEEK.format("f", "a=1"), "arguments of f: not valid JSON"),
        ("deepseek_v3", DEEPSEEK.format("function", "f\n```json\n[1]\n```"), "of f must be"),
    ],
)
def test_the_reason_names_what_is_wrong(name: str, text: str, reason: str) -> None:
    """The model can only mend what it is told."""
    read = dialect(name).parse(text, finish_reason="stop", tools=[TOOL])

    assert not read.calls
    assert reason in read.malformed[0].reason


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", '<tool_call>{"name": "f", "arg'),
        ("mistral", '[TOOL_CALLS]f[ARGS]{"a": "'),
        ("mistral", '[TOOL_CALLS][{"name": "f", "arguments": {}}'),
        ("llama3", '{"name": "f", "parameters": {"a": "'),
        ("llama3", '[f(a="x'),
        ("phi4", 'functools[{"name"'),
        ("kimi", KIMI.format("functions.f:0", '{"a"')),
        ("deepseek_v3", DEEPSEEK.format("function", 'f\n```json\n{"a"')),
    ],
)
def test_a_cut_call_says_that_it_was_cut(name: str, text: str) -> None:
    """Not that its JSON is wrong: it would have been right."""
    read = dialect(name).parse(text, finish_reason="length", tools=[TOOL])

    assert not read.calls
    assert "cut by the length limit" in read.malformed[0].reason


def test_a_reason_can_be_written_down() -> None:
    """A name with half an emoji in it must not break the record that quotes it."""
    text = '<tool_call>{"name": "\\ud83d", "arguments": 1}</tool_call>'

    (malformed,) = dialect("hermes").parse(text, finish_reason="stop").malformed

    assert malformed.reason.encode()
