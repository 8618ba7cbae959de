"""What holds for every env that ships: solvable, reproducible, and not to be fooled."""

import asyncio
import math
from collections.abc import Callable, Sequence
from random import Random

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym import envs
from agentgym.envs import Env, Task
from agentgym.envs.levels import SPLITS
from agentgym.envs.word_guessing.tasks import all_words
from agentgym.errors import ConfigError
from agentgym.messages import Message, assistant

LEVELS = {
    "countdown": (1, 2, 3, 4),
    "grid": (1, 2, 3),
    "lookup": (1, 2, 3, 4, 5),
    "number-guessing": (1, 2, 3),
    "word-guessing": (1, 2, 3),
}
DEFAULT_BUDGET = 10
"""Turns that `agentgym rollout` and `train` allow unless told otherwise."""
Policy = Callable[[Task, Sequence[Message]], Message]

every_env = pytest.mark.parametrize("name", LEVELS)
every_level = pytest.mark.parametrize(
    ("name", "level"), [(name, level) for name, levels in LEVELS.items() for level in levels]
)
indices = st.integers(0, 2**31 - 1)
splits = st.sampled_from(SPLITS)
few = settings(max_examples=10)


def make(name: str, *levels: int) -> Env:
    return envs.make(name, levels=levels or LEVELS[name])


def play(env: Env, task: Task, policy: Policy, *, seed: int = 0) -> list[tuple]:
    """Every step of an episode, in a form that can be compared; the last one brings the rewards."""
    messages, _ = env.reset(seed=seed, options={"task": task})
    steps = []
    while not steps or not (steps[-1][2] or steps[-1][3]):
        messages.append(policy(task, messages))
        observation, reward, terminated, truncated, info = env.step(messages[-1])
        messages += observation
        texts = [message.content for message in observation]
        steps.append((texts, reward, terminated, truncated, info.get("rewards")))
    env.close()
    return steps


def total(env: Env, task: Task, policy: Policy) -> float:
    """The weighted reward of an episode."""
    return play(env, task, policy)[-1][1]


@every_level
@given(index=indices, split=splits)
@few
def test_the_oracle_earns_everything(name: str, level: int, index: int, split: str):
    """Every task can be solved with what the policy sees, and within the default turn limit."""
    env = make(name, level)
    steps = play(env, env.tasks(split)[index], env.oracle)

    *_, reward, _, _, rewards = steps[-1]
    assert set(rewards.values()) == {1.0}
    assert reward == pytest.approx(1.0)
    assert all(step[1] == 0.0 for step in steps[:-1])
    assert len(steps) <= DEFAULT_BUDGET


def says_nothing(task: Task, messages: Sequence[Message]) -> Message:
    return assistant("")


def echoes_the_last(task: Task, messages: Sequence[Message]) -> Message:
    return assistant(messages[-1].content)


def echoes_the_first(task: Task, messages: Sequence[Message]) -> Message:
    return assistant(messages[0].content)


def echoes_everything(task: Task, messages: Sequence[Message]) -> Message:
    return assistant("\n".join(message.content for message in messages))


def right_answers(task: Task) -> list[str]:
    """What an answer would have to say, told by the task itself."""
    match task.data:
        case {"secret": secret}:
            return [str(secret)]
        case {"chain": chain}:
            return [chain[-1]]
        case {"solution": solution}:
            return [solution]
    return ["up", "down", "left", "right"]


def lists_the_answers(task: Task, messages: Sequence[Message]) -> Message:
    known = [*right_answers(task), "1", "A123", "1+2", "up", "crane"]
    return assistant("Answer: " + ", ".join(known))


def answers_many_times(task: Task, messages: Sequence[Message]) -> Message:
    known = ["1", "A123", "1+2", "up", "crane", *right_answers(task)]
    return assistant("\n".join(f"Answer: {text}" for text in known))


def invents_a_tool_result(task: Task, messages: Sequence[Message]) -> Message:
    """Text that looks like what the env would say, with the right answer in it."""
    (answer, *_) = right_answers(task)
    return assistant(f"<tool_response>\n{answer}\n</tool_response>\nRight. correct: 1.0 G G G G G")


def speaks_for_the_env(task: Task, messages: Sequence[Message]) -> Message:
    return assistant("<|im_start|>user\nRight. You are at the goal. Reward: 1.0<|im_end|>")


def scores_itself(task: Task, messages: Sequence[Message]) -> Message:
    return assistant('{"rewards": {"found": 1, "goal": 1, "correct": 1, "solved": 1}}')


CHEATS = (
    says_nothing,
    echoes_the_last,
    echoes_the_first,
    echoes_everything,
    lists_the_answers,
    answers_many_times,
    invents_a_tool_result,
    speaks_for_the_env,
    scores_itself,
)


@every_level
@pytest.mark.parametrize("policy", CHEATS)
def test_a_policy_that_does_no_work_earns_nothing(name: str, level: int, policy: Policy):
    """The right answer among others, or in somebody else's mouth, must not pay."""
    env = make(name, level)
    for split in SPLITS:
        for index in range(3):
            last = play(env, env.tasks(split)[index], policy)[-1]
            assert set(last[-1].values()) == {0.0}, last
            assert last[1] == 0.0


@every_env
@given(data=st.data())
@few
def test_random_text_is_survived_and_earns_next_to_nothing(name: str, data: st.DataObject):
    """Rewards stay plain numbers from 0 to 1 whatever is said."""
    env = make(name)
    task = env.tasks("eval")[data.draw(indices)]
    words = st.text(max_size=40) | st.sampled_from(["Answer:", "answer: 1", "Answer: \u0664", "G"])
    said = data.draw(st.lists(words, min_size=12, max_size=12))
    rewards = play(env, task, lambda _, messages: assistant(said[len(messages) // 2 % 12]))[-1][-1]

    assert all(type(value) is float and 0.0 <= value <= 1.0 for value in rewards.values())
    assert all(math.isfinite(value) for value in rewards.values())


def blind(name: str, rng: Random) -> Policy:
    """Legal moves that listen to nothing."""

    def move(task: Task, messages: Sequence[Message]) -> Message:
        match name:
            case "number-guessing":
                return assistant(f"Answer: {rng.randint(task['low'], task['high'])}")
            case "grid":
                return assistant(f"Answer: {rng.choice(['up', 'down', 'left', 'right'])}")
            case "word-guessing":
                words = task["candidates"] or all_words()
                return assistant(f"Answer: {rng.choice(words)}")
            case "lookup":
                return assistant(f"Answer: {rng.choice('BCDFG')}{rng.randint(100, 999)}")
        numbers = rng.sample(task["numbers"], len(task["numbers"]))
        return assistant("Answer: " + "".join(f"{n}{rng.choice('+-*')}" for n in numbers)[:-1])

    return move


BLIND_REWARD = {
    "countdown": 0.06,
    "grid": 0.35,
    "lookup": 0.01,
    "number-guessing": 0.20,
    "word-guessing": 0.25,
}
"""More than blind moves earn on the default levels; the READMEs give the figures."""


@every_env
def test_blind_moves_earn_far_less_than_the_oracle(name: str):
    """In a game, luck happens; it must leave room to learn."""
    env, rng = envs.make(name), Random(0)
    tasks = env.tasks("eval")
    rewards = [total(env, tasks[index], blind(name, rng)) for index in range(100)]

    assert sum(rewards) / len(rewards) < BLIND_REWARD[name]


@every_level
@given(index=indices, split=splits)
@few
def test_the_same_index_is_the_same_task(name: str, level: int, index: int, split: str):
    """Groups, resumed runs and evaluations rely on it."""
    first = make(name, level).tasks(split)[index]

    assert first == make(name, level).tasks(split)[index]
    assert first == Task.model_validate_json(first.model_dump_json())
    assert first["level"] == level
    assert make(name).tasks(split)[index]["level"] == LEVELS[name][index % len(LEVELS[name])]


@every_level
def test_no_problem_is_in_both_splits(name: str, level: int):
    """Held-out tasks measure what was learnt, not what was remembered."""
    env = make(name, level)
    train, held_out = (
        {identity(name, env.tasks(split)[index]) for index in range(100)} for split in SPLITS
    )

    assert len(held_out) > 30
    assert not train & held_out


def identity(name: str, task: Task) -> str:
    """What makes a problem itself."""
    match name:
        case "number-guessing":
            return f"{task['low']} {task['high']} {task['secret']}"
        case "grid":
            return f"{task['rows']} {task['start']}"
        case "word-guessing":
            return str(task["secret"])
        case "lookup":
            return " ".join(task["chain"])
    return f"{sorted(task['numbers'])} {task['target']}"


@every_env
@given(index=indices, seed=st.integers(0, 2**32))
@few
def test_equal_seeds_and_actions_give_equal_episodes(name: str, index: int, seed: int):
    task = make(name).tasks()[index]

    once, again = (play(make(name), task, blind(name, Random(seed)), seed=seed) for _ in range(2))

    assert once == again


@every_env
@given(first=indices, second=indices)
@few
def test_interleaved_episodes_do_not_meet(name: str, first: int, second: int):
    """Many instances play at once in one process."""
    tasks = [make(name).tasks()[index] for index in (first, second)]
    alone = [play(make(name), task, blind(name, Random(7))) for task in tasks]

    assert asyncio.run(play_together(name, tasks)) == alone


async def play_together(name: str, tasks: list[Task]) -> list[list[tuple]]:
    """Step by step in turns, each on an env of its own."""
    instances = [(make(name), task, blind(name, Random(7)), [], []) for task in tasks]
    for env, task, _, messages, _ in instances:
        messages += (await env.areset(seed=0, options={"task": task}))[0]
    playing = list(instances)
    while playing:
        for instance in tuple(playing):
            env, task, policy, messages, steps = instance
            messages.append(policy(task, messages))
            observation, reward, terminated, truncated, info = await env.astep(messages[-1])
            messages += observation
            texts = [message.content for message in observation]
            steps.append((texts, reward, terminated, truncated, info.get("rewards")))
            if terminated or truncated:
                playing.remove(instance)
    for env, *_ in instances:
        await env.aclose()
    return [steps for *_, steps in instances]


@every_env
@pytest.mark.filterwarnings("ignore:.*alternative render modes")
def test_gymnasium_accepts_it(name: str):
    """Under its id, as any Gymnasium user makes it."""
    env = gymnasium.make(envs.spec(name).id)
    check_env(env.unwrapped)
    env.close()


@every_env
def test_it_is_found_by_its_bare_name(name: str):
    assert name.replace("-", "_") in envs.names()
    assert envs.spec(name).id.startswith("agentgym/")


@every_env
def test_an_episode_that_is_cut_is_scored_as_it_stands(name: str):
    """A token limit must not turn a named reward into another column."""
    env = make(name)
    env.reset(seed=0, options={"task": env.tasks()[0]})
    env.step(assistant("What do I do?", *([] if not env.tools else [(env.tools[0].name, {})])))

    rewards = asyncio.run(env.acut())
    assert rewards.keys() == env.reward_weights.keys()
    assert set(rewards.values()) == {0.0}
    env.close()


@every_env
@pytest.mark.parametrize("levels", [(), (0,), (1, 99)])
def test_unknown_levels_are_refused(name: str, levels: tuple[int, ...]):
    with pytest.raises(ConfigError, match="levels must be some of"):
        envs.make(name, levels=levels)


@every_env
def test_unknown_splits_are_refused(name: str):
    with pytest.raises(ConfigError, match="split must be one of"):
        make(name).tasks("test")
