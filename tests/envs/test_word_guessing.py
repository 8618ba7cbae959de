"""Word guessing: exact marks, the bundled words, and an oracle that always finds them."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.envs import Task
from agentgym.envs.levels import SPLITS, split_of
from agentgym.envs.word_guessing import WordGuessingEnv
from agentgym.envs.word_guessing.feedback import feedback
from agentgym.envs.word_guessing.scoring import letters
from agentgym.envs.word_guessing.tasks import all_words
from agentgym.messages import Message

TASK = Task(id="t", data={"level": 3, "secret": "abbey", "candidates": [], "tries": 6})
few_letters = st.text("abc", min_size=5, max_size=5)


@pytest.mark.parametrize(
    ("guess", "secret", "marks"),
    [
        ("crane", "crane", "GGGGG"),
        ("sound", "crane", "---G-"),
        ("babes", "abbey", "YYGG-"),
        ("kebab", "abbey", "-YGYY"),
        ("abbey", "babes", "YYGG-"),
        ("speed", "abide", "--Y-Y"),
        ("speed", "erase", "Y-YY-"),
        ("speed", "steal", "G-G--"),
        ("speed", "crepe", "-YGY-"),
        ("eerie", "there", "Y-Y-G"),
        ("aaaaa", "abaca", "G-G-G"),
        ("llama", "small", "YYGY-"),
        ("geese", "elder", "-YY--"),
    ],
)
def test_marks_of_repeated_letters(guess: str, secret: str, marks: str):
    """A letter is marked as often as the hidden word has it, in place first, then from the left."""
    assert feedback(guess, secret) == marks


@given(few_letters, few_letters)
def test_marks_count_every_letter_once(guess: str, secret: str):
    """G and Y of a letter together are as many as both words have of it."""
    marks = feedback(guess, secret)
    marked = Counter(g for g, mark in zip(guess, marks, strict=True) if mark != "-")

    assert marked == Counter(guess) & Counter(secret)
    assert [m == "G" for m in marks] == [g == s for g, s in zip(guess, secret, strict=True)]
    for letter in set(guess):
        loose = [m for g, m in zip(guess, marks, strict=True) if g == letter and m != "G"]
        assert loose == sorted(loose, reverse=True), "Y comes before -"


def play(*said: str, task: Task = TASK) -> tuple[list[str], float, dict[str, float]]:
    env = WordGuessingEnv()
    env.reset(options={"task": task})
    steps = [env.step(text) for text in said]
    env.close()
    return [step[0][0].content for step in steps], steps[-1][1], steps[-1][4].get("rewards", {})


def test_a_whole_game():
    heard, reward, rewards = play("Answer: babes", "I think of kebab. Answer: Kebab", "ABBEY")

    assert heard[0] == "b a b e s\nY Y G G -\nGuesses left: 5."
    assert heard[2] == "a b b e y\nG G G G G\nGuesses left: 3."
    assert rewards == {"found": 1.0, "letters": 1.0}
    assert reward == pytest.approx(1.0)


def test_other_messages_cost_a_guess_and_the_best_guess_counts():
    heard, reward, rewards = play("what", "babes", "zzzzz", "Answer: abbeys", "xxxxx", "babes")

    assert heard[0].startswith("That is no guess")
    assert heard[3].startswith("That is no guess")
    assert heard[-1].endswith("Guesses left: 0.")
    assert rewards == {"found": 0.0, "letters": 0.4}
    assert reward == pytest.approx(0.04)


def test_letters_in_place_are_counted_in_one_guess():
    assert letters([], "abbey") == 0.0
    assert letters(["axxxx", "xbxxx"], "abbey") == 0.2


def test_the_words_are_words_of_five_letters_told_apart():
    words = all_words()

    assert len(words) == len(set(words)) > 500
    assert all(len(word) == 5 and word.isascii() and word.islower() for word in words)
    assert list(words) == sorted(words)
    assert {split_of(word) for word in words} == set(SPLITS)


def test_the_word_is_told_only_among_candidates():
    env = WordGuessingEnv((1, 3))
    for index in range(40):
        task = env.tasks()[index]
        (message,), _ = env.reset(options={"task": task})
        assert (task["secret"] in message.content) is (task["level"] == 1)
        assert not task["candidates"] or task["secret"] in task["candidates"]
    env.close()


@pytest.mark.slow
def test_the_oracle_finds_every_bundled_word():
    """Six guesses are enough for all of them, from marks alone: equal marks, equal guess."""
    env = WordGuessingEnv((3,))
    guesses: dict[tuple[str, ...], Message] = {}
    for secret in all_words():
        task = Task(id=secret, data={**TASK.data, "secret": secret})
        messages: list[Message] = list(env.reset(options={"task": task})[0])
        over = False
        while not over:
            seen = tuple(message.content for message in messages)
            if seen not in guesses:
                guesses[seen] = env.oracle(task, messages)
            messages.append(guesses[seen])
            observation, _, over, _, info = env.step(messages[-1])
            messages += observation
        assert info["rewards"] == {"found": 1.0, "letters": 1.0}, secret
    env.close()
