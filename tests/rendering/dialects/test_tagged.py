"""Qwen3-Coder and GLM: typed values, tags inside values, and what models get wrong.

The cases follow failures reported of the parsers of vLLM, SGLang, llama.cpp and Ollama.
"""

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.messages import ToolCall
from agentgym.rendering import ParsedAction, ToolSchema, dialect

STRING = {"type": "string"}


def tool(name: str, required: tuple[str, ...] = (), **properties: dict[str, Any]) -> ToolSchema:
    """A tool with these arguments."""
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [
    tool("bash", ("command",), command=STRING),
    tool("search", ("query",), query=STRING, top_k={"type": "integer"}),
    tool("write_file", ("path", "content"), path=STRING, content=STRING),
    tool("list_files"),
    tool("move", ("x", "y"), x={"type": "integer"}, y={"type": "integer"}),
    tool(
        "configure",
        enabled={"type": "boolean"},
        ids={"type": "array"},
        options={"type": "object"},
        ratio={"type": "number"},
        count={"type": "integer"},
        label=STRING,
        note={"anyOf": [{"type": "string"}, {"type": "null"}]},
        any={},
    ),
]

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
Calls = list[tuple[str, dict[str, Any]]]


def read(name: str, text: str, **options: Any) -> ParsedAction:
    """One turn that ended by itself, read with all tools."""
    return dialect(name).parse(text, **{"finish_reason": "stop", "tools": TOOLS, **options})


def said(action: ParsedAction) -> Calls:
    """Names and arguments."""
    return [(call.name, call.arguments) for call in action.calls]


def qwen(name: str, **arguments: str) -> str:
    """A call as Qwen3-Coder writes it, from bare text."""
    parts = [f"<parameter={key}>\n{text}\n</parameter>\n" for key, text in arguments.items()]
    return f"<tool_call>\n<function={name}>\n{''.join(parts)}</function>\n</tool_call>"


def glm(name: str, **arguments: str) -> str:
    """A call as GLM-4.7 writes it, from bare text."""
    pairs = [
        f"<arg_key>{key}</arg_key><arg_value>{text}</arg_value>" for key, text in arguments.items()
    ]
    return f"<tool_call>{name}{''.join(pairs)}</tool_call>"


WRITERS = {"qwen3_coder": qwen, "glm": glm}
both = pytest.mark.parametrize("name", WRITERS)


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


BASH = ("bash", {"command": "ls"})
_HEAD = "<tool_call>\n<function=bash>\n<parameter=command>\nls\n"
QWEN_REPAIRED: dict[str, tuple[str, Calls]] = {
    "no block end": (_HEAD + "</parameter>\n</function>", [BASH]),
    "no function end": (_HEAD + "</parameter>", [BASH]),
    "no ends but the block's": (_HEAD + "</tool_call>", [BASH]),
    "garbled end": (_HEAD + "</parameter/>\n</function>\n</tool_call>", [BASH]),
    "cut end tag": (_HEAD + "</parameter\n</function>\n</tool_call>", [BASH]),
    "fused end tag": (_HEAD + "</parameterfunction>\n</function>\n</tool_call>", [BASH]),
    "one line": (qwen("bash", command="ls").replace("\n", ""), [BASH]),
    "two in one block": (
        _HEAD + "</parameter>\n</function>\n<function=list_files>\n</function>\n</tool_call>",
        [BASH, ("list_files", {})],
    ),
    "json in the block": (
        '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>',
        [BASH],
    ),
    "json in the function": (
        '<tool_call>\n<function=bash>\n{"command": "</function>"}\n</function>\n</tool_call>',
        [("bash", {"command": "</function>"})],
    ),
    "bare": (
        "<function=list_files></function>\n" + qwen("bash", command="ls"),
        [("list_files", {}), BASH],
    ),
    "next call after no end": (
        _HEAD + "</parameter>\n</function>\n" + qwen("list_files"),
        [BASH, ("list_files", {})],
    ),
    "quoted name": (qwen('"bash"', command="ls"), [BASH]),
    "unknown tool": (qwen("nope", a="1"), [("nope", {"a": 1})]),
}
GLM_REPAIRED: dict[str, tuple[str, Calls]] = {
    "no value tag": (glm("bash", command="ls").replace("<arg_value>", ""), [BASH]),
    "no value end": (glm("bash", command="ls").replace("</arg_value>", ""), [BASH]),
    "doubled key tag": (glm("bash", command="ls").replace("<arg_key>", "<arg_key>" * 2), [BASH]),
    "doubled key end": (glm("bash", command="ls").replace("</arg_key>", "</arg_key>" * 2), [BASH]),
    "no block end": (glm("bash", command="ls").removesuffix("</tool_call>"), [BASH]),
    "name on its own line": (glm("\nbash\n", command="ls"), [BASH]),
    "no arguments": ("<tool_call>list_files\n</tool_call>", [("list_files", {})]),
    "parallel": (glm("bash", command="ls") * 2, [BASH, BASH]),
    "value without end before the next key": (
        glm("search", query="a", top_k="2").replace("</arg_value>", "", 1),
        [("search", {"query": "a", "top_k": 2})],
    ),
    "json in the block": (
        '<tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call>',
        [BASH],
    ),
    "stop token": (glm("bash", command="ls") + "<|observation|>", [BASH]),
}
REPAIRED = {"qwen3_coder": QWEN_REPAIRED, "glm": GLM_REPAIRED}


@pytest.mark.parametrize(
    ("name", "case"), [(name, case) for name, cases in REPAIRED.items() for case in cases]
)
def test_slips_that_lose_nothing_are_forgiven(name: str, case: str) -> None:
    """The call is clear although a tag is missing, doubled or garbled."""
    text, calls = REPAIRED[name][case]
    action = read(name, text)

    assert said(action) == calls
    assert not action.malformed
    assert not action.content


UNCLEAR = {
    "qwen3_coder": {
        "empty block": ("<tool_call>\n</tool_call>", "empty"),
        "no name": ("<tool_call>\n<function=>\n</function>\n</tool_call>", "no tool name"),
        "open function tag": (
            "<tool_call>\n<function=bash\n</function>\n</tool_call>",
            "not closed",
        ),
        "value without end": (_HEAD, "'command' is not closed"),
        "given twice": (
            qwen("bash", command="a").replace(
                "</function>", "<parameter=command>b</parameter></function>"
            ),
            "given twice",
        ),
        "text between": (_HEAD + "</parameter>\nnote\n</function>\n</tool_call>", "'note'"),
        "stray end": (
            _HEAD + "</parameter>\n</parameter>\n</function>\n</tool_call>",
            "none is open",
        ),
        "broken json": ('<tool_call>\n{"name": "bash", \n</tool_call>', "not valid JSON"),
        "python": ("<tool_call>\nbash(command='ls')\n</tool_call>", "outside the tags"),
        "no parts": ("<tool_call>\n<function=bash>", "not closed"),
    },
    "glm": {
        "empty block": ("<tool_call></tool_call>", "no tool name"),
        "no value": ("<tool_call>bash<arg_key>command</arg_key></tool_call>", "has no value"),
        "no key": ("<tool_call>bash<arg_value>ls</arg_value></tool_call>", "outside the tags"),
        "key runs into name": (
            "<tool_call>bashcommand</arg_key><arg_value>ls</arg_value></tool_call>",
            "",
        ),
        "given twice": (
            glm("bash", command="a").replace(
                "</tool", "<arg_key>command</arg_key><arg_value>b</arg_value></tool"
            ),
            "given twice",
        ),
        "text behind a value": (
            glm("bash", command="ls").replace("</tool", "junk</tool"),
            "followed by text",
        ),
        "stray end": (
            glm("bash", command="ls").replace("</tool", "</arg_value></tool"),
            "none is open",
        ),
        "python": ("<tool_call>bash(command='ls')</tool_call>", "no tool name"),
        "value without end": (
            "<tool_call>bash<arg_key>command</arg_key><arg_value>ls",
            "not closed",
        ),
        "no parts": ("<tool_call>bash", "not closed"),
    },
}


@pytest.mark.parametrize(
    ("name", "case"), [(name, case) for name, cases in UNCLEAR.items() for case in cases]
)
def test_what_is_unclear_is_told_and_costs_only_itself(name: str, case: str) -> None:
    """Nothing is run on a guess; a good call on the next line is."""
    text, reason = UNCLEAR[name][case]
    action = read(name, text)

    assert not action.calls
    assert len(action.malformed) == 1
    assert reason in action.malformed[0].reason
    beside = read(name, f"{text}\n{WRITERS[name]('bash', command='ls')}")
    assert said(beside) == [BASH]
    assert len(beside.malformed) == 1


@both
def test_a_call_that_is_cut_is_never_closed(name: str) -> None:
    """Cut by length at any place, the turn has the whole call or none, and tells why."""
    whole = WRITERS[name]("search", query="a b", top_k="25")
    for end in range(len(whole)):
        action = read(name, whole[:end], finish_reason="length")

        assert not action.calls
        assert action.truncated
        if end > len("<tool_call>\n<function="):
            assert "cut by the length limit" in action.malformed[0].reason


@both
@pytest.mark.parametrize(
    "text",
    [
        "Use the <tool_call> tag to call a tool.",
        "The tags </tool_call>, </function> and </parameter> close one.",
        "Write `<function=bash>` or <function=foo>.",
        '{"name": "bash"}',
        "a < b and b > c",
        "<function=foo>\n<parameter=a>\n1\n</parameter>\n</function>",
    ],
)
def test_talking_about_calls_is_no_call(name: str, text: str) -> None:
    """Prose stays whole; a bare function counts only if there is such a tool."""
    action = read(name, text)

    assert (action.calls, action.malformed) == ((), ())
    assert action.content == text


@both
def test_the_prompt_may_begin_a_call_or_the_reasoning(name: str) -> None:
    """As forced tool use and thinking templates do."""
    call = WRITERS[name]("bash", command="ls")

    assert said(read(name, call.removeprefix("<tool_call>"), prompt_suffix="<tool_call>")) == [BASH]
    assert said(read(name, f"a</think>{call}", prompt_suffix="<think>\n")) == [BASH]
    assert read(name, f"a{call}", prompt_suffix="<think>\n").reasoning == f"a{call}"


@both
@pytest.mark.parametrize(
    "unit",
    [
        *("<tool_call>", "<tool_call> x", "<tool_call>\n", "<function=bash>", "</parameter>\n"),
        *("<function=bash><parameter=command>", "<tool_call><function=bash><parameter=command>"),
        *("<arg_key>", "</arg_key>", "<tool_call>bash<arg_key>command</arg_key><arg_value>"),
        *("<tool_call>f<arg_key> ", "<tool_call>a", "</arg_value>", "<parameter=", "<function="),
    ],
)
def test_reading_is_linear(name: str, unit: str) -> None:
    """Openers without an end are looked through once."""
    start = time.perf_counter()
    for finish_reason in ("stop", "length"):
        read(name, unit * (50_000 // len(unit)), finish_reason=finish_reason)

    assert time.perf_counter() - start < 3


@both
@pytest.mark.parametrize("unit", ["[", "{'a':", "-", "(", '"', "1+"])
def test_values_are_bounded_in_depth_and_time(name: str, unit: str) -> None:
    """A value that cannot be read is text, however long."""
    text = unit * 50_000
    start = time.perf_counter()
    action = read(name, WRITERS[name]("configure", options=text))

    assert said(action) == [("configure", {"options": text})]
    assert time.perf_counter() - start < 2
