"""The data sets of reasoning-gym, run for real."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("reasoning_gym", reason="needs the extra 'reasoning-gym'")

from agentgym import envs
from agentgym.envs.adapters import reasoning_gym
from agentgym.envs.adapters.process import HostPool
from agentgym.envs.adapters.reasoning_gym import REFUSED, WITHOUT_ORACLE, known_names, read_answer
from agentgym.errors import ConfigError, NotRegisteredError, RewardError
from agentgym.trajectory import Task


def played(env: envs.Env, task: Task, text: str) -> dict[str, float | None]:
    """Rewards of an answer."""
    env.reset(seed=0, options={"task": task})
    rewards: dict[str, float | None] = env.step(text)[-1]["rewards"]
    return rewards


def oracle_score(name: str, split: str, index: int) -> float | None:
    env = envs.make(f"reasoning-gym/{name}")
    task = env.tasks(split)[index]
    return played(env, task, env.oracle(task, []).content)["score"]  # type: ignore[attr-defined]


@pytest.mark.slow
def test_every_data_set_is_built_and_its_oracle_scores_at_the_top() -> None:
    """Those that cannot are refused or listed by name."""
    names = [name for name in known_names() if name not in WITHOUT_ORACLE]
    scores = {name: oracle_score(name, "eval", 3) for name in names}

    assert len(names) >= 102
    assert {name: score for name, score in scores.items() if score != 1.0} == {}


@pytest.mark.parametrize("name", ["leg_counting", "graph_color", "countdown", "rubiks_cube"])
def test_the_oracle_is_right_and_nonsense_is_not(name: str) -> None:
    """Plain answers, answers with many right ones, and answers read from the metadata."""
    env = envs.make(f"reasoning-gym/{name}")

    assert oracle_score(name, "train", 7) == 1.0
    assert (played(env, env.tasks()[7], "<answer>banana</answer>")["score"] or 0.0) < 0.2


def test_tasks_are_numbers_and_the_splits_share_none() -> None:
    """The same index is the same question, in any order; seeds of the splits differ."""
    env = envs.make("reasoning-gym/basic_arithmetic")
    train, held_out = env.tasks("train"), env.tasks("eval")
    forward = [train[index] for index in (0, 499, 500, 1234)]
    backward = [env.tasks()[index] for index in (1234, 500, 499, 0)]

    assert forward == backward[::-1]
    assert len({task["question"] for task in forward}) == 4
    seeds = Counter(
        task["seed"] for tasks in (train, held_out) for task in map(tasks.__getitem__, range(50))
    )
    assert set(seeds.values()) == {1}
    with pytest.raises(ConfigError, match="split must be one of"):
        env.tasks("test")


def test_a_data_set_without_an_oracle_says_so() -> None:
    """It can be trained on all the same."""
    env = envs.make("reasoning-gym/rush_hour")
    task = env.tasks()[0]

    with pytest.raises(ConfigError, match="has no oracle"):
        env.oracle(task, [])  # type: ignore[attr-defined]
    assert played(env, task, "nothing")["score"] is not None


def test_an_answer_its_grader_chokes_on_is_unscored() -> None:
    """`prime_factorization` raises on text; that is no evidence of anything."""
    env = envs.make("reasoning-gym/prime_factorization")

    assert played(env, env.tasks()[0], "<answer>banana</answer>") == {"score": None}


def test_a_task_of_another_version_is_no_zero() -> None:
    """Grading an answer to another question would be."""
    env = envs.make("reasoning-gym/leg_counting")
    stale = env.tasks()[0].model_copy(update={"data": {**env.tasks()[0].data, "question": "?"}})

    with pytest.raises(RewardError, match="another version"):
        played(env, stale, "4")


@pytest.mark.slow
def test_a_grader_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some evaluate what the policy wrote; the next answer is graded by a new process."""
    pool = HostPool("reasoning-gym", size=1, idle_s=60.0)
    monkeypatch.setattr(reasoning_gym, "_pool", pool)
    env = envs.make("reasoning-gym/countdown")
    task = env.tasks()[0]
    env.timeout_s = 1.5  # type: ignore[attr-defined]
    with pytest.raises(RewardError, match=r"took more than 1\.5 s"):
        played(env, task, "<answer>9**9**9**9</answer>")
    env.timeout_s = 60.0  # type: ignore[attr-defined]

    assert played(env, task, f"<answer>{task['answer']}</answer>")["score"] == 1.0
    pool.close()


@pytest.mark.slow
async def test_many_are_graded_at_once() -> None:
    """Each gets its own score."""

    async def play(index: int) -> float:
        env = envs.make("reasoning-gym/leg_counting")
        task = env.tasks()[index]
        await env.areset(seed=0, options={"task": task})
        text = task["answer"] if index % 2 else "-1"
        return (await env.astep(f"<answer>{text}</answer>"))[1]

    assert await asyncio.gather(*map(play, range(12))) == [float(i % 2) for i in range(12)]


def test_settings_reach_the_data_set() -> None:
    """Harder or easier."""
    env = envs.make("reasoning-gym/chain_sum", config={"min_terms": 9, "max_terms": 9})

    assert env.tasks()[0]["question"].count(" + ") + env.tasks()[0]["question"].count(" - ") == 8


@pytest.mark.parametrize(
    ("name", "config", "error", "complaint"),
    [
        ("leg_countin", None, NotRegisteredError, "Did you mean 'leg_counting'"),
        ("leg_counting", {"legs": 3}, ConfigError, "is refused: TypeError.*'legs'"),
        ("leg_counting", {"max_animals": -1}, ConfigError, "is refused: AssertionError"),
        ("leg_counting", {"seed": 3}, ConfigError, "must leave out 'seed'"),
        *((name, None, ConfigError, reason) for name, reason in REFUSED.items()),
    ],
)
def test_what_cannot_be_played_is_one_line(
    name: str, config: dict[str, int] | None, error: type[Exception], complaint: str
) -> None:
    """Before anything is played."""
    with pytest.raises(error, match=complaint) as caught:
        envs.make(f"reasoning-gym/{name}", config=config)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer> 4 </answer>", "4"),
        ("<answer>1</answer> no, <answer>2</answer>", "2"),
        ("say <answer>x and <answer>y</answer>", "y"),
        ("just 4", "just 4"),
        ("<answer>open", "<answer>open"),
        ("<answer>" * 20000, ("<answer>" * 20000)),
        (None, None),
    ],
)
def test_the_last_tagged_answer_counts(text: str | None, answer: str | None) -> None:
    """Without tags, everything does."""
    assert read_answer(text) == answer


@pytest.mark.parametrize(
    "name",
    [
        "binary_matrix",
        "countdown",
        "intermediate_integration",
        "n_queens",
        "polynomial_multiplication",
        "puzzle24",
        "simple_integration",
        "spiral_matrix",
        "string_insertion",
    ],
)
def test_an_answer_is_never_run_as_code(name: str, tmp_path: Path) -> None:
    """These graders evaluate answers: a policy must not reach the machine, or other grades."""
    env, mark = envs.make(f"reasoning-gym/{name}"), tmp_path / "ran"
    task = env.tasks()[0]
    code = f"open('{mark}', 'w')"
    hidden = f"eval({'+'.join(f'chr({ord(letter)})' for letter in code)})"
    for attack in (code, f"[{code}]", f"__import__('pathlib').Path('{mark}').touch()", hidden):
        rewards = played(env, task, f"<answer>{attack}</answer>")

        assert (rewards["score"] or 0.0) < 0.1
        assert not mark.exists()
    assert played(env, task, f"<answer>{task['answer']}</answer>")["score"] == 1.0
