"""ReAct: labelled text, in the forms that models give it.

The cases follow failures reported of LangChain, LlamaIndex, CrewAI and others.
"""

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.messages import ToolCall
from agentgym.rendering import ParsedAction, ToolSchema, dialect

REACT = dialect("react")


def tool(name: str, required: tuple[str, ...] = (), **types: str) -> ToolSchema:
    """A tool with arguments of these types."""
    properties = {key: {"type": each} for key, each in types.items()}
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [
    tool("search", ("query",), query="string", top_k="integer"),
    tool("calculator", ("expression",), expression="string"),
    tool("square", n="integer"),
    tool("move", ("x", "y"), x="integer", y="integer"),
    tool("list_files"),
]
SEARCH = [("search", {"query": "a b"})]


def read(text: str, **options: Any) -> ParsedAction:
    """One turn that ended by itself."""
    return REACT.parse(text, **{"finish_reason": "stop", "tools": TOOLS, **options})


def said(action: ParsedAction) -> list[tuple[str, dict[str, Any]]]:
    """Names and arguments."""
    return [(call.name, call.arguments) for call in action.calls]


@pytest.mark.parametrize(
    "text",
    [
        'Action: search\nAction Input: {"query": "a b"}',
        'Thought: t\n\nAction: search\n\nAction Input:\n{"query":\n"a b"}\n',
        'I need to look.\n\nAction: search\nAction Input: {"query": "a b"}',
        '**Thought:** t\n**Action:** `search`\n**Action Input:** {"query": "a b"}',
        'action: search\naction_input: {"query": "a b"}',
        'Action 1: search\nAction Input 1: {"query": "a b"}\nObservation 1:',
        'Action：search\nAction Input：{"query": "a b"}',  # noqa: RUF001
        "Action: search\nAction Input: {'query': 'a b'}",
        "Action: search\nAction Input: a b",
        'Action: search\nAction Input: "a b"',
        "Action: search\nAction Input: query: a b",
        'Action: search\nAction Input: query="a b"',
        'Action: search\nAction Input: "{\\"query\\": \\"a b\\"}"',
        'Action: search\nAction Input: ```json\n{"query": "a b"}\n```',
        'Action: search\nAction Input:\n```\n{"query": "a b"}\n```\nObservation: ',
        'Action: search Action Input: {"query": "a b"}',
        'Thought: use it. Action: search Action Input: {"query": "a b"}',
        'Action: search({"query": "a b"})',
        'Action: search ({"query": "a b"})',
        'Action: search(query="a b")',
        "Action: search[a b]",
        'Action: {"action": "search", "action_input": {"query": "a b"}}',
        'Action:\n```json\n{"action": "search", "action_input": "a b"}\n```',
        'Action: {"name": "search", "arguments": {"query": "a b"}}',
        'Action: search\nAction Input: {"query": "a b"}\nFinal Answer: made up',
        'Final Answer: let me look\nAction: search\nAction Input: {"query": "a b"}',
        "<think>Action: calculator\nAction Input: 1</think>Action: search\nAction Input: a b",
    ],
)
def test_forms_of_a_call(text: str) -> None:
    """All say the same; an answer beside a call is none."""
    action = read(text)

    assert said(action) == SEARCH
    assert not action.malformed
    assert action.final_answer is None


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("Action: square\nAction Input: 5", [("square", {"n": 5})]),
        ("Action: square(5)", [("square", {"n": 5})]),
        ("Action: move(x=1, y=-2)", [("move", {"x": 1, "y": -2})]),
        ("Action: move\nAction Input: x: 1\ny: 2", [("move", {"x": 1, "y": 2})]),
        ("Action: list_files", [("list_files", {})]),
        ("Action: list_files()", [("list_files", {})]),
        ("Action: list_files\nAction Input:", [("list_files", {})]),
        ("Action: list_files\nAction Input: None", [("list_files", {})]),
        ("Action: nope\nAction Input: {}", [("nope", {})]),
        ('Action: search\nAction Input: {"query": "007"}', [("search", {"query": "007"})]),
        ("Action: calculator\nAction Input: 007", [("calculator", {"expression": "007"})]),
        (
            "Action: calculator\nAction Input: (1+2)*(3)",
            [("calculator", {"expression": "(1+2)*(3)"})],
        ),
        ("Action: calculator((1+2)*(3))", [("calculator", {"expression": "(1+2)*(3)"})]),
        ("Action: calculator\nAction Input: a=1", [("calculator", {"expression": "a=1"})]),
        ("Action: calculator\nAction Input: [1, 2]", [("calculator", {"expression": "[1, 2]"})]),
        ("Action: [square].\nAction Input: 5", [("square", {"n": 5})]),
        ("Action: square()\nAction Input: 5", [("square", {"n": 5})]),
        ("Action: calculator\nAction Input: `2+2`", [("calculator", {"expression": "2+2"})]),
        (
            'Action: search\nAction Input: {"query": "x\nObservation: y\nAction: z"}',
            [("search", {"query": "x\nObservation: y\nAction: z"})],
        ),
        (
            "Action: square\nAction Input: 5\nAction: square\nAction Input: 6",
            [("square", {"n": 5}), ("square", {"n": 6})],
        ),
    ],
)
def test_arguments(text: str, calls: list[tuple[str, dict[str, Any]]]) -> None:
    """Bare values mean what the schema says, where there is no doubt whose they are."""
    assert said(read(text)) == calls


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('Action: search\nAction Input: {"query": "a"', "not valid JSON"),
        ('Action: search\nAction Input: {"query": "a"}}', "text after the JSON object"),
        ('Action: search\nAction Input: {"query": "a"} and more', "text after the JSON object"),
        ("Action: move\nAction Input: 1, 2", "must be a JSON object"),
        ("Action: move\nAction Input: x: 1\nz: 2", "must be a JSON object"),
        ("Action: search", "Action Input of 'search' is missing"),
        ("Action: search\nAction Input:", "must be a JSON object"),
        ("Action: search the web\nAction Input: {}", "no tool name"),
        ('Action:\nAction Input: {"query": "a"}', "names no tool"),
        ('Action Input: {"query": "a"}', "without an Action"),
        ('Action: {"action_input": "a"}', "names no tool"),
        ('Action: search\nAction Input: [{"query": "a"}]', "must be a JSON object"),
        ("Action: calculator(1)+(2)", "must be a JSON object"),
        ("Action: search(query=foo)", "must be a JSON object"),
    ],
)
def test_what_is_unclear_is_told(text: str, reason: str) -> None:
    """Nothing is run on a guess, and no answer is taken from the same turn."""
    for end in ("", "\nFinal Answer: 4"):
        action = read(text + end)

        assert not action.calls
        assert [reason in call.reason for call in action.malformed] == [True]
        assert action.final_answer is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Final Answer: 4", "4"),
        ("Thought: t\nFinal Answer: a: {b}\n\nc", "a: {b}\n\nc"),
        ("**Final Answer:** 4", "4"),
        ("Answer: 4", "4"),
        ("Final Answer: 4\nObservation: 5\nFinal Answer: 5", "4"),
        ("Final Answer: now\nAction: go home\nThought: x", "now\nAction: go home\nThought: x"),
        ("Action: None\nFinal Answer: 4", "4"),
        ("Action: N/A\nAction Input: None\nFinal Answer: 4", "4"),
        ("Action: Final Answer\nAction Input: 4", "4"),
        ("Action: Finish[4]", "4"),
        ("Final Answer:", ""),
    ],
)
def test_answers(text: str, answer: str) -> None:
    """Everything behind the label, but for an invented observation."""
    action = read(text)

    assert action.final_answer == answer
    assert (action.calls, action.malformed) == ((), ())


@pytest.mark.parametrize(
    ("text", "content", "reasoning"),
    [
        ("Just words.", "Just words.", None),
        ("Thought: only", "only", None),
        ("Thought: cannot\nAction: None (direct response required)", "cannot", None),
        ("Thought: a\nObservation: 12\nFinal Answer: 12", "", "a"),
        ("Observation: 12\nFinal Answer: 12", "", None),
        ('{"a": 1}', '{"a": 1}', None),
    ],
)
def test_neither_call_nor_answer(text: str, content: str, reasoning: str | None) -> None:
    """What is left is what the model said; behind an invented observation nothing is."""
    action = read(text)

    assert (action.content, action.reasoning, action.final_answer) == (content, reasoning, None)
    assert (action.calls, action.malformed) == ((), ())


@pytest.mark.parametrize(
    ("suffix", "text", "calls", "answer"),
    [
        ("<|im_start|>assistant\nThought:", " t\nFinal Answer: 4", [], "4"),
        ("Thought: t\nFinal Answer:", " 4", [], "4"),
        ("Action: search\nAction Input:", ' {"query": "a b"}', SEARCH, None),
        ("Action:", ' search\nAction Input: {"query": "a b"}', SEARCH, None),
        ("Action: search\nAction Input: {}\nObservation: 1\n", "Final Answer: 4", [], "4"),
        ("Action: search\nAction Input: {}\nObservation:", " 4", [], None),
    ],
)
def test_the_prompt_may_end_with_a_label(
    suffix: str, text: str, calls: list[tuple[str, dict[str, Any]]], answer: str | None
) -> None:
    """As schedulers and prompts that lead the model do."""
    action = read(text, prompt_suffix=suffix)

    assert said(action) == calls
    assert action.final_answer == answer


def test_a_cut_turn_answers_nothing() -> None:
    """Neither an answer nor a call is taken from what was not finished."""
    assert read("Final Answer: 4", finish_reason="length").final_answer is None
    for text in (
        "Action: sear",
        "Action: search\nAction Input: a",
        'Action: search\nAction Input: {"q',
    ):
        action = read(text, finish_reason="length")

        assert not action.calls
        assert "cut by the length limit" in action.malformed[0].reason


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab:\n "), inner),
    max_leaves=6,
)
calls = st.builds(
    ToolCall,
    id=st.just("call_0"),
    name=st.text("abc_-.0", min_size=1, max_size=6).map("f".__add__),
    arguments=st.dictionaries(st.text("ab:\n ", min_size=1), json_values, max_size=3),
)


@given(made=st.lists(calls, min_size=1, max_size=3))
@settings(max_examples=40)
def test_what_is_written_is_read_back(made: list[ToolCall]) -> None:
    """JSON keeps the types, and a label inside a string is text."""
    action = read("Thought: t\n" + "\n".join(map(REACT.format_call, made)))

    assert repr(said(action)) == repr([(call.name, call.arguments) for call in made])
    assert (action.malformed, action.content, action.reasoning) == ((), "", "t")


@pytest.mark.parametrize(
    "unit",
    [
        *("Action: f\n", "Action: search\nAction Input: {", "Action Input: x\n", "Thought: x\n"),
        *("Action: f\nAction Input: {'a': 1}\n", "Final Answer: x\n", "Action: ", "action  "),
        *("Final Answer: x\nAction: search\nAction Input: x\n", "**", "```", "(", "Thought: "),
        *("Action: search\nAction Input: [[[", 'Action: search\nAction Input: {"a": "', "\n> "),
    ],
)
def test_reading_is_linear(unit: str) -> None:
    """Labels without end are looked through once."""
    start = time.perf_counter()
    for finish_reason in ("stop", "length"):
        read(unit * (20_000 // len(unit)), finish_reason=finish_reason)

    assert time.perf_counter() - start < 3
