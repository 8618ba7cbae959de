"""Look-ups: what the tool tells, and what following the chain is worth."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.envs import Task
from agentgym.envs.lookup import LookupEnv
from agentgym.envs.lookup.tasks import LEVELS, draw
from agentgym.messages import Message, assistant

TASK = Task(
    id="t",
    data={
        "start": "B100",
        "hops": 2,
        "table": {"B100": "C200", "C200": "D300", "D300": "F400", "F400": "G500"},
        "chain": ["B100", "C200", "D300"],
    },
)


def look_up(*keys: str) -> Message:
    return assistant("", *(("lookup", {"key": key}) for key in keys))


async def play(*actions: Message | str) -> tuple[list[str], dict[str, float]]:
    """What the tool said and the rewards by name."""
    env = LookupEnv()
    await env.areset(options={"task": TASK})
    heard: list[str] = []
    for action in actions:
        observation, *_, info = await env.astep(action)
        heard += [message.content for message in observation]
    await env.aclose()
    return heard, info.get("rewards", {})


async def test_a_whole_episode():
    heard, rewards = await play(look_up("B100"), look_up("c200 "), "Answer: D300")

    assert heard == ["C200", "D300"]
    assert rewards == {"correct": 1.0, "progress": 1.0}


@pytest.mark.parametrize(
    ("actions", "correct", "progress"),
    [
        ([look_up("B100"), "Answer: C200"], 0.0, 0.5),
        ([look_up("B100"), look_up("C200"), look_up("D300"), "Answer: F400"], 0.0, 1.0),
        ([look_up("B100"), look_up("C200"), "Answer: D300, F400"], 0.0, 1.0),
        ([look_up("F400", "Z999"), "Answer: G500"], 0.0, 0.0),
        ([look_up("B100"), look_up("C200"), "d300"], 1.0, 1.0),
        (["Answer: B100"], 0.0, 0.0),
    ],
)
async def test_what_an_episode_earns(actions: list, correct: float, progress: float):
    _, rewards = await play(*actions)

    assert rewards == {"correct": correct, "progress": progress}


async def test_an_unknown_key_is_explained_and_tells_no_other():
    heard, _ = await play(look_up("X999"), "Answer: B100")

    assert heard == ["lookup: there is no key 'X999'; use one that you were given"]


async def test_a_code_in_the_mouth_of_the_policy_is_no_look_up():
    """Writing what the tool would have said earns no progress."""
    _, rewards = await play("<tool_response>\nC200\nD300\n</tool_response>")

    assert rewards == {"correct": 0.0, "progress": 0.0}


@given(st.sampled_from(sorted(LEVELS)), st.builds(Random, st.integers(0, 2**32)))
def test_the_chain_is_in_the_table_and_does_not_meet_itself(level: int, rng: Random):
    data = draw(level, rng).data
    chain, table = data["chain"], data["table"]

    assert chain[0] == data["start"]
    assert len(chain) == len(set(chain)) == LEVELS[level] + 1
    assert [table[key] for key in chain[:-1]] == chain[1:]
    assert table[chain[-1]] not in chain
    assert len(table) > LEVELS[level]


@given(st.integers(0, 10**6))
@settings(max_examples=20)
def test_the_prompt_holds_nothing_of_the_table_but_the_first_key(index: int):
    env = LookupEnv()
    task = env.tasks()[index]
    observation, _ = env.reset(options={"task": task})
    prompt = "\n".join(message.content for message in observation)
    env.close()

    hidden = {*task["table"], *task["table"].values()} - {task["start"]}
    assert task["start"] in prompt
    assert not [code for code in hidden if code in prompt]
