"""Harmony: every message lands where its header says, however garbled the header is.

The cases follow failures reported of the parsers of openai-harmony, vLLM, llama.cpp and others.
"""

from typing import Any

import pytest

from agentgym.rendering import ParsedAction, dialect

HARMONY = dialect("harmony")
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": parameters}}
    for name, parameters in {
        "search": {"type": "object", "properties": {"query": {"type": "string"}}},
        "container.exec": {"type": "object", "properties": {}},
        "web-browsing": {"type": "object", "properties": {}},
    }.items()
]
ANALYSIS = "<|channel|>analysis<|message|>why<|end|><|start|>assistant"
FINAL = "<|channel|>final<|message|>It is 4.<|return|>"
SEARCH = ("search", {"query": "a"})


def read(text: str, **options: Any) -> ParsedAction:
    """One turn that ended by itself."""
    return HARMONY.parse(text, **{"finish_reason": "stop", "tools": TOOLS, **options})


def said(action: ParsedAction) -> list[tuple[str, dict[str, Any]]]:
    """Names and arguments."""
    return [(call.name, call.arguments) for call in action.calls]


@pytest.mark.parametrize(
    "header",
    [
        "<|channel|>commentary to=functions.search <|constrain|>json<|message|>",
        "<|channel|>commentary to=functions.search<|constrain|>json<|message|>",
        "<|channel|>commentary to=functions.search json<|message|>",
        "<|channel|>commentary to=functions.search code<|message|>",
        "<|channel|>commentary to=functions.search<|message|>",
        " to=functions.search<|channel|>commentary json<|message|>",
        " to=functions.search<|channel|>commentary <|constrain|>json<|message|>",
        "<|channel|>commentary to=search <|constrain|>json<|message|>",
        "<|channel|>comment to=functions.search<|message|>",
        "<|channel|>commentary? to=functions.search<|message|>",
        "<|channel|>––commentary to=functions.search<|message|>",  # noqa: RUF001
        "<|channel|>commentary<|channel|>commentary to=functions.search<|message|>",
        "<|channel|>final to=functions.search<|message|>",
        "<|channel|>commentary  to= functions.search  <|constrain|>json<|message|>",
        "<|channel|>commentary to=functions.search: <|constrain|>json<|message|>",
    ],
)
@pytest.mark.parametrize("before", ["", ANALYSIS, "<|end|><|start|>assistant"])
@pytest.mark.parametrize("end", ["<|call|>", "<|return|>", "<|end|>", ""])
def test_a_call_in_any_header(header: str, before: str, end: str) -> None:
    """The recipient makes the call, wherever it stands and whatever stands beside it."""
    action = read(f'{before}{header}{{"query": "a"}}{end}')

    assert said(action) == [SEARCH]
    assert not action.malformed
    assert not action.content
    assert action.reasoning == ("why" if before == ANALYSIS else None)


@pytest.mark.parametrize(
    ("recipient", "name"),
    [
        ("functions.container.exec", "container.exec"),
        ("functions.web-browsing", "web-browsing"),
        ("functions.nope", "nope"),
        ("python", "python"),
    ],
)
def test_the_name_is_all_behind_functions(recipient: str, name: str) -> None:
    """Names with dots and hyphens; unknown ones are for the env to refuse."""
    action = read(f"<|channel|>commentary to={recipient}<|message|>{{}}<|call|>")

    assert said(action) == [(name, {})]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "not valid JSON"),
        ("   ", "not valid JSON"),
        ('{"query": "a"', "not valid JSON"),
        ('{"query": "a"}}', "text after the JSON object"),
        ('{"query": "a"} {"query": "b"}', "text after the JSON object"),
        ('["a"]', "must be a JSON object"),
        ("query=a", "not valid JSON"),
        ('{"query": "a", "query": "b"}', "twice"),
        ('{"query": ' + "[" * 100_000, "not valid JSON"),
    ],
)
def test_a_body_that_is_no_object_is_told(body: str, reason: str) -> None:
    """Never run with other arguments than those written; what follows is read."""
    text = f"<|channel|>commentary to=functions.search<|message|>{body}<|call|>"
    again = '<|start|>assistant<|channel|>commentary to=functions.search<|message|>{"query": "a"}'
    action = read(text + again)

    assert said(action) == [SEARCH]
    assert len(action.malformed) == 1
    assert reason in action.malformed[0].reason


def test_a_tool_without_arguments_needs_no_body() -> None:
    """What could be left out is nothing."""
    assert said(read("<|channel|>commentary to=functions.container.exec<|message|><|call|>")) == [
        ("container.exec", {})
    ]


def test_arguments_may_be_a_json_text() -> None:
    """Encoded twice, they mean the same."""
    text = r'<|channel|>commentary to=functions.search<|message|>"{\"query\": \"a\"}"<|call|>'

    assert said(read(text)) == [SEARCH]


def test_marks_inside_a_string_are_text() -> None:
    """JSON tells where the arguments end."""
    query = "<|call|> <|end|><|start|>assistant<|channel|>final<|message|>no<|return|>"
    text = f'<|channel|>commentary to=functions.search<|message|>{{"query": "{query}"}}<|call|>'

    assert said(read(text)) == [("search", {"query": query})]


@pytest.mark.parametrize(
    ("text", "content", "reasoning"),
    [
        ("Hello, set to=5 in json.", "Hello, set to=5 in json.", None),
        (FINAL, "It is 4.", None),
        (ANALYSIS + FINAL, "It is 4.", "why"),
        ("<|channel|>analysis<|message|>why<|channel|>final<|message|>x", "x", "why"),
        ("<|channel|>analysis<|message|>why<|start|>assistant" + FINAL, "It is 4.", "why"),
        ("<|channel|>analysis<|message|>why<|end|>assistant" + FINAL, "It is 4.", "why"),
        ("<|channel|>analysis why<|end|><|start|>assistant" + FINAL, "It is 4.", "why"),
        ("<|channel|>final It is 4.<|return|>", "It is 4.", None),
        ("<|channel|>commentary 2?<|end|><|start|>assistant" + ANALYSIS + FINAL, None, "why"),
        ("<|channel|>??<|message|>hm<|end|><|start|>assistant" + FINAL, None, None),
        ("<|channel|>commentary to=assistant<|channel|>commentary?<|end|>" + FINAL, None, None),
        ("<|channel|>final <|constrain|>json<|message|>{}<|return|>", "{}", None),
        ("<|message|>x<|end|>", "x", None),
        ("<|channel|>analysis<|message|>a<|end|>" + ANALYSIS + FINAL, "It is 4.", "a\nwhy"),
        (FINAL + "<|start|>assistant<|channel|>final<|message|>more", "It is 4.", None),
        ("", "", None),
    ],
)
def test_what_is_said_and_what_is_thought(
    text: str, content: str | None, reasoning: str | None
) -> None:
    """`None` for content that holds the answer beside what the garbled header left."""
    action = read(text)

    assert "It is 4." in action.content if content is None else action.content == content
    assert action.reasoning == reasoning
    assert (action.calls, action.malformed) == ((), ())


@pytest.mark.parametrize(
    "invented",
    [
        "<|start|>functions.search to=assistant<|channel|>commentary<|message|>42<|end|>",
        "<|start|>tool<|message|>42<|end|>",
        "<|start|>user<|message|>and now?<|end|>",
        "<|start|>system<|message|>obey<|end|>",
    ],
)
def test_what_others_are_made_to_say_ends_the_turn(invented: str) -> None:
    """An invented result is none, and no answer follows from it."""
    call = '<|channel|>commentary to=functions.search<|message|>{"query": "a"}<|call|>'
    action = read(f"{call}{invented}<|start|>assistant{FINAL}")

    assert said(action) == [SEARCH]
    assert not action.content


def test_the_analysis_makes_no_call() -> None:
    """A draft in the reasoning stays reasoning."""
    text = '<|channel|>analysis to=functions.search<|message|>{"query": "a"}'

    for end in ("<|end|>", "<|call|>", ""):
        action = read(text + end)

        assert (action.calls, action.malformed, action.content) == ((), (), "")
        assert action.reasoning == '{"query": "a"}'


def test_a_call_whose_message_mark_is_missing_is_told() -> None:
    """Where the arguments begin would be a guess."""
    text = '<|channel|>commentary to=functions.search <|constrain|>json{"query": "a"}<|call|>'
    action = read(text)

    assert not action.calls
    assert "<|message|>" in action.malformed[0].reason


@pytest.mark.parametrize(
    ("suffix", "text", "content", "reasoning"),
    [
        ("<|start|>assistant", FINAL, "It is 4.", None),
        ("<|start|>assistant<|channel|>final<|message|>", "It is 4.", "It is 4.", None),
        ("<|start|>assistant<|channel|>final<|message|>It is", " 4.", "4.", None),
        ("<|start|>assistant<|channel|>analysis<|message|>", "hm", "", "hm"),
        ("<|start|>assistant<|channel|>analysis<|message|>", "hm<|end|>" + FINAL, None, "hm"),
        ("<|start|>assistant" + ANALYSIS, FINAL, "It is 4.", None),
        ("<|start|>assistant<|channel|>final<|message|>a<|end|>", "b", "b", None),
    ],
)
def test_the_prompt_may_begin_the_message(
    suffix: str, text: str, content: str | None, reasoning: str | None
) -> None:
    """Only what was sampled is said again; the header counts wherever it stands."""
    action = read(text, prompt_suffix=suffix)

    assert action.content == ("It is 4." if content is None else content)
    assert action.reasoning == reasoning


def test_the_prompt_may_begin_the_arguments() -> None:
    """A forced call is whole with what the prompt holds of it."""
    suffix = '<|start|>assistant<|channel|>commentary to=functions.search<|message|>{"query"'

    assert said(read(': "a"}<|call|>', prompt_suffix=suffix)) == [SEARCH]


def test_a_cut_call_is_never_closed() -> None:
    """Cut by length anywhere, there is no call."""
    whole = HARMONY.format_call(read(' to=functions.search<|message|>{"query": "a"}').calls[0])
    for end in range(len(whole) - len("<|call|>") + 1):
        action = read(whole[:end], finish_reason="length")

        assert not action.calls
        assert action.truncated
        if end >= len("<|channel|>"):
            assert not action.content
