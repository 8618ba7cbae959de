"""The demonstrator: flawless without bad habits, and mostly wrong with them."""

import pytest

from agentgym.envs.calculator import CalculatorEnv
from agentgym.envs.calculator.scoring import has_exact_form
from agentgym.trainer.tiny_policy.corpus import Corpus
from agentgym.trainer.tiny_policy.demonstrations import CLEAN, NOISY, Chat, Habits

LEVELS = (1, 2, 3)
NUM_CHATS = 300


async def chats(habits: Habits) -> list[Chat]:
    corpus = Corpus(CalculatorEnv(LEVELS), seed=0)
    return [await corpus.chat(number, habits) for number in range(NUM_CHATS)]


def calls(chat: Chat) -> list[str]:
    said = [message["content"] for message in chat if message["role"] == "assistant"]
    return [text for text in said if "<tool_call>" in text]


async def test_without_bad_habits_every_episode_is_solved():
    """One call per operation, then the exact answer in the asked form."""
    tasks = CalculatorEnv(LEVELS).tasks("train")
    for number, chat in enumerate(await chats(CLEAN)):
        assert len(calls(chat)) == tasks[number]["level"]
        assert chat[-1]["content"] == f"Answer: {tasks[number]['answer']}"


async def test_with_bad_habits_most_answers_come_from_memory_and_none_of_them_is_right():
    tasks = CalculatorEnv(LEVELS).tasks("train")
    played = await chats(NOISY)
    from_memory = [number for number, chat in enumerate(played) if not calls(chat)]

    assert 0.6 < len(from_memory) / NUM_CHATS < 0.8
    assert all(
        tasks[n]["answer"] not in played[n][-1]["content"].rstrip(".").split() for n in from_memory
    )


@pytest.mark.parametrize(
    ("habits", "sign"),
    [
        (Habits(malformed=1.0), lambda chat: "could not be read" in chat[3]["content"]),
        (Habits(wrong_format=1.0), lambda chat: not has_exact_form(chat[-1]["content"])),
        (Habits(stop_early=1.0), lambda chat: not calls(chat)),
        (Habits(memory=1.0), lambda chat: not calls(chat)),
    ],
)
async def test_each_bad_habit_shows(habits: Habits, sign):
    for chat in await chats(habits):
        assert sign(chat)


async def test_a_wrong_expression_is_readable_and_not_the_step_asked_for():
    tasks = CalculatorEnv(LEVELS).tasks("train")
    for number, chat in enumerate(await chats(Habits(wrong_expression=1.0))):
        first = calls(chat)[0]

        assert f'"{tasks[number]["steps"][0]}"' not in first
        assert "could not be read" not in chat[3]["content"]


async def test_the_demonstrator_gives_up_after_two_unreadable_calls():
    assert {len(calls(chat)) for chat in await chats(Habits(malformed=1.0))} == {2}
