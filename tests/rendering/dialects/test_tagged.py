"""Qwen3-Coder and GLM: typed values, and tags inside values.

The cases follow failures reported of the parsers of vLLM, SGLang, llama.cpp and Ollama.
"""

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tagged_kit import WRITERS, both, glm, qwen, read, said

from agentgym.messages import ToolCall
from agentgym.rendering import dialect

words = st.text(alphabet=st.characters(exclude_characters="<", exclude_categories=["Cs"]))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
arguments = st.fixed_dictionaries(
    {},
    optional={
        "enabled": st.booleans(),
        "ids": st.lists(json_values, max_size=3),
        "options": st.dictionaries(words, json_values, max_size=3),
        "ratio": st.floats(allow_nan=False, allow_infinity=False) | st.integers(),
        "count": st.integers(),
        "label": words,
        "note": st.none() | words.filter(lambda text: text.strip() not in {"null", "None"}),
        "any": st.none() | st.booleans() | st.integers() | st.lists(json_values, max_size=2),
    },
)
configure_calls = st.builds(
    ToolCall, id=st.just("call_0"), name=st.just("configure"), arguments=arguments
)


@both
@given(made=st.lists(configure_calls, min_size=1, max_size=2))
@settings(max_examples=40)
def test_what_is_written_is_read_back(name: str, made: list[ToolCall]) -> None:
    """With the schema, bare text means what was meant, to the type and to the last newline."""
    text = "\n".join(map(dialect(name).format_call, made))
    action = read(name, text)

    assert repr(said(action)) == repr([(call.name, call.arguments) for call in made])
    assert not action.malformed
    assert not action.content


@both
@pytest.mark.parametrize(
    "text",
    [
        *("007", "1_000", "true", "null", "[1]", "{}", "3.10", '"quoted"', "a\\nb", ""),
        *(" x ", "\n\nx\n\n", "\tx\r\n", "  if x:\n    pass\n", "a && b <c> d", "&lt;&amp;"),
        *("use </parameter> inline", "see </arg_value> here", "Close with </tool_call> please"),
        *("the </function> tag", "<think>x</think>", "an open <tool_call> only", "<parameter=zzz>"),
        *(
            qwen("bash", command="ls"),
            glm("bash", command="ls"),
            "<tool_response>1</tool_response>",
        ),
        *("<|im_end|>", "</parameter", "</arg_key>", "<arg_key>", "<function=bash>"),
    ],
)
def test_a_string_stays_byte_for_byte(name: str, text: str) -> None:
    """Whatever it looks like: numbers, markup, the call format itself."""
    action = read(name, WRITERS[name]("write_file", path="a", content=text))

    assert said(action) == [("write_file", {"path": "a", "content": text})]
    assert not action.malformed


@both
@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("enabled", "True", True),
        ("enabled", "false", False),
        ("enabled", " true\n", True),
        ("enabled", "1", "1"),
        ("count", "7.0", 7),
        ("count", "-3", -3),
        ("count", "true", "true"),
        ("count", "2026-01-15", "2026-01-15"),
        ("count", "7.5", "7.5"),
        ("count", "None", "None"),
        ("count", "9" * 5000, "9" * 5000),
        ("ratio", "1", 1),
        ("ratio", "1e-3", 0.001),
        ("ids", "(1, None, 'a')", [1, None, "a"]),
        ("ids", "[1, 2", "[1, 2"),
        ("ids", '"[1, 2]"', [1, 2]),
        ("options", "{'a': [True, None]}", {"a": [True, None]}),
        ("options", '{"a": "</tool_call>"}', {"a": "</tool_call>"}),
        ("options", '"text"', '"text"'),
        ("note", "None", None),
        ("note", "7", "7"),
        ("any", '{"a": 1}', {"a": 1}),
        ("any", "plain", "plain"),
        ("any", "007", "007"),
        ("unheard_of", "[1]", [1]),
    ],
)
def test_the_schema_says_what_a_value_means(name: str, key: str, text: str, value: Any) -> None:
    """What is no value of its type stays text, so that the tool can say so."""
    action = read(name, WRITERS[name]("configure", **{key: text}))

    assert repr(said(action)) == repr([("configure", {key: value})])


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"enum": ["1", "2"]}, "1", "1"),
        ({"enum": [1, 2]}, "1", 1),
        ({"const": "7"}, "7", "7"),
        ({"type": ["integer", "string"]}, "7", 7),
        ({"type": ["integer", "string"]}, "007", "007"),
        ({"oneOf": [{"type": "object"}, {"type": "null"}]}, "null", None),
        ({"$ref": "#/$defs/Name"}, "12", "12"),
        ({"$ref": "#/$defs/Loop"}, "12", 12),
        ({"$ref": "#/nowhere"}, "12", 12),
        ({"allOf": [{"$ref": "#/$defs/Name"}]}, "12", "12"),
        ({"properties": {"a": {}}}, "{'a': 1}", {"a": 1}),
    ],
)
def test_forms_of_schemas(schema: dict[str, Any], text: str, value: Any) -> None:
    """As pydantic and MCP servers write them."""
    parameters = {
        "type": "object",
        "properties": {"x": schema},
        "$defs": {"Name": {"type": "string"}, "Loop": {"$ref": "#/$defs/Loop"}},
    }
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]

    for name, write in WRITERS.items():
        assert repr(said(read(name, write("f", x=text), tools=tools))) == repr(
            [("f", {"x": value})]
        )


@both
@pytest.mark.parametrize("unit", ["[", "{'a':", "-", "(", '"', "1+"])
def test_values_are_bounded_in_depth_and_time(name: str, unit: str) -> None:
    """A value that cannot be read is text, however long."""
    text = unit * 50_000
    start = time.perf_counter()
    action = read(name, WRITERS[name]("configure", options=text))

    assert said(action) == [("configure", {"options": text})]
    assert time.perf_counter() - start < 2
