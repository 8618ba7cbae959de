"""Qwen3-Coder and GLM: what models get wrong, and what only looks like a call.

The cases follow failures reported of the parsers of vLLM, SGLang, llama.cpp and Ollama.
"""

import time

import pytest
from tagged_kit import WRITERS, Calls, both, glm, qwen, read, said

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
