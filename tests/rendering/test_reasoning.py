"""Reasoning is what its own marks enclose, wherever they were opened."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.rendering.reasoning import FAMILIES, THINK, Marks, left_open, split_reasoning

every_family = pytest.mark.parametrize("marks", FAMILIES, ids=lambda marks: marks.open)
pieces = st.lists(
    st.sampled_from([*(mark for marks in FAMILIES[:4] for mark in marks), "a", "\n", " ", "<"]),
    max_size=12,
).map("".join)


@every_family
def test_a_block_is_cut_out(marks: Marks) -> None:
    """Text around it stays."""
    text = f"a {marks.open}\nwhy\n{marks.close} b"

    assert split_reasoning(text) == ("why", "a  b")


@every_family
@pytest.mark.parametrize("layout", ["", "\n", "\n\n"])
def test_the_prompt_may_open_it(marks: Marks, layout: str) -> None:
    """Templates of thinking models end the prompt inside the reasoning."""
    suffix = f"<|assistant|>{marks.open}{layout}"

    assert split_reasoning(f"why{marks.close}b", prompt_suffix=suffix) == ("why", "b")
    assert split_reasoning("no end", prompt_suffix=suffix) == ("no end", "")


@pytest.mark.parametrize(
    ("suffix", "expected"),
    [
        ("", None),
        ("<think>\n\n</think>\n\n", None),
        ("<think>\nearlier, sampled\n", THINK),
        ("<think>a</think> b <think>\nc", THINK),
        ("<think>a</think> The answer is", None),
        ("</think>", None),
        ("</think><think>", THINK),
        ("[THINK]a[/THINK]<think>", THINK),
        ("<think>a[/THINK]", None),
    ],
)
def test_what_the_prompt_leaves_open(suffix: str, expected: Marks | None) -> None:
    """What was opened last and not closed since, also by text that the turn goes on after."""
    assert left_open(suffix) == expected


@pytest.mark.parametrize(
    ("text", "reasoning", "visible"),
    [
        ("plain", None, "plain"),
        ("<think>cut", "cut", ""),
        ("<think></think>b", "", "b"),
        ("<think>a</think>b<think>c</think>d", "a\nc", "bd"),
        ("<think>a <think> b</think>c", "a <think> b", "c"),
        ("<think>a [/THINK] b</think>c", "a [/THINK] b", "c"),
        ("why\n</think>\nb", "why", "\nb"),
        ("<think>a</think>b</think>c", "a", "bc"),
    ],
)
def test_odd_blocks(text: str, reasoning: str | None, visible: str) -> None:
    """Doubled, nested, foreign and missing marks."""
    assert split_reasoning(text) == (reasoning, visible)


@given(text=pieces, suffix=pieces)
def test_what_is_left_opens_nothing(text: str, suffix: str) -> None:
    """Else a reader behind it would find reasoning again, or a mark as content."""
    split = split_reasoning(text, prompt_suffix=suffix)

    if left_open(suffix) is None and not any(mark in text for pair in FAMILIES for mark in pair):
        assert split == (None, text)
    if left_open(suffix) is not None:
        assert split.reasoning is not None


@pytest.mark.parametrize("unit", ["<think>", "</think>", "<think></think>", "◁think▷", "<"])
def test_it_is_linear(unit: str) -> None:
    """A policy that repeats itself costs a moment."""
    start = time.perf_counter()
    split_reasoning(unit * 50_000, prompt_suffix=unit * 1000)

    assert time.perf_counter() - start < 2
