"""Rewards for form and length: what a pattern would let pass, and the formulas' edges."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.messages import Message, ToolCall, assistant, user
from agentgym.registry import REWARDS
from agentgym.rewards.formats import (
    CodeFormat,
    Cosine,
    Repetition,
    SoftOverlong,
    code_format,
    num_sampled,
    react_action,
    react_format,
    think_answer,
)
from agentgym.rewards.formats import format as format_reward
from agentgym.tokens import Segment
from agentgym.trajectory import RolloutOutput, StopReason

BLOCK = "```python\nprint(1)\n```"
NAMES = ("format", "code_format", "react_format", "soft_overlong", "cosine", "repetition")


def played(*said: str | Message, reward: float | None = None, tokens: int = 0) -> RolloutOutput:
    """A trajectory with these messages of the policy, and so many tokens in two turns."""
    messages = [m if isinstance(m, Message) else assistant(m) for m in said]
    half = tokens // 2
    return RolloutOutput(
        request_id="r",
        group_id="g",
        task_id="t",
        env="e",
        seed=0,
        messages=(user("?"), *messages),
        segments=tuple(
            segment
            for size in (half, tokens - half)
            for segment in (
                Segment(ids=(1, 2, 3), source="template"),
                Segment(
                    ids=(7,) * size, source="sampled", logprobs=(-0.5,) * size, policy_version=0
                ),
            )
        ),
        rewards={} if reward is None else {"correct": reward},
        reward=reward,
        stop_reason=StopReason.FINAL_ANSWER,
    )


@pytest.mark.parametrize("name", NAMES)
def test_each_is_registered_under_its_name(name: str):
    score = REWARDS.get(name)(played("hello there", reward=1.0, tokens=10))

    assert isinstance(score, float)


@pytest.mark.parametrize(
    "text",
    [
        "<think>a</think><answer>1</answer>",
        "<think>a</think>\n\n<answer>1</answer>\n",
        "\n<think>\na\nb\n</think>\n<answer>\n1\n</answer>\n\n",
        "<think>2 < 3 and <b></think><answer><i>1</i></answer>",
    ],
)
def test_thoughts_then_an_answer_have_the_form(text: str):
    assert format_reward(played(text)) == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "<answer>1</answer>",
        "<think>a</think>1",
        "<think>a</think><answer>1</answer><answer>2</answer>",
        "<think>a</think><answer>1</answer> junk <answer>2</answer>",
        "<think>a</think><think>b</think><answer>1</answer>",
        "<think>use <answer>3</answer></think>\n<answer>4</answer> trailing",
        "<think>use <answer>3</answer></think>\n<answer>4</answer>",
        "<think>a</think>\n<answer>4</answer>.",
        "Well. <think>a</think><answer>1</answer>",
        "<think>a</think> so <answer>1</answer>",
        "<think></think><answer>1</answer>",
        "<think>a</think><answer> \n</answer>",
        "<think>a</think><answer>1",
        "<think>a<answer>1</answer></think>",
        "<answer>1</answer><think>a</think>",
        "<Think>a</Think><answer>1</answer>",
    ],
)
def test_anything_else_has_not(text: str):
    """Second answers, words around the blocks, empty blocks and tags inside them."""
    assert think_answer(text) is None
    assert format_reward(played(text)) == 0.0


def test_thoughts_that_were_read_out_of_a_message_count_as_its_tags():
    """What a parser took apart is judged as it was said."""
    thought = Message(role="assistant", content="\n<answer>1</answer>", reasoning="a")
    nested = Message(role="assistant", content="<answer>1</answer>", reasoning="<answer>2</answer>")

    assert format_reward(played(thought)) == 1.0
    assert format_reward(played(nested)) == 0.0
    assert format_reward(played("<think>a</think><answer>1</answer>", "no")) == 0.0
    assert format_reward(played()) == 0.0


@given(st.text(alphabet="<>/thinkaswer 1\n"), st.text(alphabet="ab \n"))
def test_no_text_breaks_the_form(text: str, inside: str):
    """What is read is what was between the tags."""
    whole = f"<think>{inside}</think>\n<answer>{inside}</answer>"
    stripped = inside.strip()

    assert think_answer(whole) == ((stripped, stripped) if stripped else None)
    assert think_answer(text) is None or text.count("answer>") == 2


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        (BLOCK, 1.0),
        (f"Here it is:\n{BLOCK}\nDone.", 1.0),
        ("```\nprint(1)\n```", 1.0),
        ("```py\nprint(1)\n```", 1.0),
        ("```python\n\n```", 0.0),
        ("```python\nprint(1)", 0.0),
        ("```rust\nfn main() {}\n```", 0.0),
        ("print(1)", 0.0),
    ],
)
def test_code_has_to_be_in_a_closed_block_of_the_answer(answer: str, score: float):
    assert code_format(played(f"<think>a</think>\n<answer>{answer}\n</answer>")) == score
    assert code_format(played(f"<think>{BLOCK}</think>\n<answer>1</answer>")) == 0.0
    assert code_format(played(answer)) == 0.0


def test_the_language_of_the_block_can_be_another():
    said = played("<think>a</think><answer>\n```rust\nfn main() {}\n```\n</answer>")

    assert CodeFormat(language="rust")(said) == 1.0
    assert code_format(said) == 0.0


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("<think>a</think>\nAction: look\nAction Input: door", ("look", "door")),
        ('<think>a</think>Action: add\nAction Input: {\n"a": 1}\n', ("add", '{\n"a": 1}')),
        ("<think>a</think>\nAction: look\nAction Input: door\nObservation: open", None),
        ("<think>a</think>\nAction: a\nAction Input: b\nAction: c\nAction Input: d", None),
        ("<think>a</think>\nAction: a\nAction Input: b\nFinal Answer: 1", None),
        ("Action: look\nAction Input: door", None),
        ("<think></think>\nAction: look\nAction Input: door", None),
        ("<think>a</think>\nHm. Action: look\nAction Input: door", None),
        ("<think>a</think>\nAction: look", None),
        ("<think>a</think><think>b</think>\nAction: look\nAction Input: door", None),
    ],
)
def test_one_action_after_thoughts(text: str, action: tuple[str, str] | None):
    """Nothing may follow: an invented observation least of all."""
    assert react_action(text) == action
    assert react_format(played(text)) == float(action is not None)


def test_calls_that_were_read_count_by_what_was_read():
    call = ToolCall(id="c", name="look", arguments={})
    good = Message(role="assistant", reasoning="a", tool_calls=(call,))
    twice = Message(role="assistant", reasoning="a", tool_calls=(call, call))
    mute = Message(role="assistant", tool_calls=(call,))

    assert react_format(played(good, "It is open.")) == 1.0
    assert react_format(played(good, good)) == 1.0
    assert react_format(played("Hm.", good)) == 0.0
    assert react_format(played(twice, "1")) == 0.0
    assert react_format(played(mute, "1")) == 0.0
    assert react_format(played("1")) == 0.0


def test_tokens_of_all_turns_are_counted():
    """Not turns, and not what the template added."""
    assert num_sampled(played(tokens=37)) == 37


@pytest.mark.parametrize(
    ("tokens", "score"),
    [(0, 0.0), (800, 0.0), (900, -0.5), (1000, -1.0), (1500, -1.0)],
)
def test_soft_overlong_is_dapos_and_ends_at_minus_one(tokens: int, score: float):
    reward = SoftOverlong(max_tokens=1000, cache_tokens=200)

    assert reward(played(tokens=tokens)) == pytest.approx(score)


@pytest.mark.parametrize(
    ("tokens", "right", "wrong"),
    [(0, 1.0, -0.5), (500, 0.75, -0.25), (1000, 0.5, 0.0), (2000, 0.5, 0.0)],
)
def test_cosine_stays_where_it_is_beyond_the_longest(tokens: int, right: float, wrong: float):
    """A cosine that goes on would pay for twice the length as for none."""
    reward = Cosine(max_tokens=1000)

    assert reward(played(tokens=tokens, reward=1.0)) == pytest.approx(right)
    assert reward(played(tokens=tokens, reward=0.9)) == pytest.approx(wrong)


def test_cosine_needs_somebody_to_say_what_is_right():
    assert Cosine()(played(tokens=5)) is None
    assert Cosine(column="correct")(played(tokens=0, reward=1.0)) == pytest.approx(1.0)
    assert Cosine(column="other")(played(tokens=0, reward=1.0)) is None


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("one two", 0.0),
        ("one two three four", 0.0),
        ("one two three ONE Two three", -(1 - 3 / 4)),
        ("go go go go go", -(1 - 1 / 3)),
        ("好好好好好", -(1 - 1 / 3)),
        ("今天天气很好", 0.0),
        ("ไปไปไปไป", -(1 - 2 / 6)),
    ],
)
def test_repetition_counts_words_or_characters_where_there_are_no_blanks(text: str, score: float):
    assert Repetition()(played(text)) == pytest.approx(score)


def test_repetition_is_that_of_all_messages_and_does_not_cross_them():
    again = "the same three"

    assert Repetition()(played(again, again, again)) == pytest.approx(-(1 - 1 / 3))
    assert Repetition(max_penalty=2.0)(played(again, again)) == pytest.approx(-1.0)
    assert Repetition()(played("a b", "c d")) == 0.0


@given(st.text(), st.integers(0, 3000), st.floats(0, 1))
def test_lengths_and_repetition_stay_in_their_range(text: str, tokens: int, reward: float):
    said = played(text.encode("utf-8", "ignore").decode(), tokens=tokens, reward=reward)

    assert -1.0 <= Repetition()(said) <= 0.0
    assert -1.0 <= SoftOverlong()(said) <= 0.0
    assert -0.5 <= Cosine()(said) <= 1.0
