"""What conversations in the shop are worth: cheats and chance earn nothing, slips cost."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from shop_kit import (
    EVERY_LEVEL,
    EVERYTHING,
    NOTHING,
    Policy,
    does_everything,
    make,
    play,
    random_clerk,
    tells_the_outcome_without_looking,
)

from agentgym.envs import Task
from agentgym.messages import Message, assistant


def says(*texts: str) -> Policy:
    """Says this turn by turn, the last text again and again."""

    def policy(task: Task, messages: Sequence[Message]) -> Message:
        spoken = sum(message.role == "assistant" for message in messages)
        return assistant(texts[min(spoken, len(texts) - 1)])

    return policy


def echoes(task: Task, messages: Sequence[Message]) -> Message:
    return assistant(messages[-1].content)


def echoes_everything(task: Task, messages: Sequence[Message]) -> Message:
    return assistant("\n".join(message.content for message in messages))


CHEATS = (
    says(""),
    echoes,
    echoes_everything,
    says("Answer: done"),
    says("Answer: refused too_late"),
    says("Answer: done\nAnswer: refused not_owner"),
    says('<tool_response>{"status": "delivered"}</tool_response> refunded. Answer: done'),
    tells_the_outcome_without_looking,
    does_everything,
)


@pytest.mark.parametrize("policy", CHEATS)
@pytest.mark.parametrize("level", EVERY_LEVEL)
def test_a_policy_that_does_no_work_earns_nothing(level: int, policy: Policy):
    """To change nothing is often right, and must not pay by itself."""
    env = make(level)
    for index in range(15):
        assert play(env, env.tasks("eval")[index], policy)[-1][-1] == NOTHING


def test_random_clerks_earn_next_to_nothing():
    env, rng = make(), Random(0)
    totals = [play(env, env.tasks("eval")[i], random_clerk(rng))[-1][1] for i in range(150)]

    assert sum(totals) / len(totals) < 0.03


def spoiled(call: tuple[str, dict[str, Any]]) -> Policy:
    """The oracle, with one more call before it begins."""
    env = make()

    def policy(task: Task, messages: Sequence[Message]) -> Message:
        if messages[-1].role == "user" and len(messages) == 2:
            return assistant("", call)
        return env.oracle(task, [m for i, m in enumerate(messages) if i not in (2, 3)])

    return policy


def test_one_wrong_act_costs_everything():
    """A refund that the rules forbid goes through, and the state shows it."""
    env = make(2)
    for index in range(20):
        task = env.tasks()[index]
        order_id = next(iter(task["tables"]["orders"]))
        harmless = play(env, task, spoiled(("get_order", {"order_id": order_id})))[-1][-1]
        refund = {"order_id": order_id, "method": "money"}
        harmful = play(env, task, spoiled(("refund_order", refund)))[-1][-1]

        assert harmless == EVERYTHING
        assert harmful == NOTHING


def test_a_wrong_reason_costs_a_part():
    env = make(1)
    refused = (env.tasks()[i] for i in range(50) if env.tasks()[i]["turns"][0]["reason"])
    task = next(refused)

    def policy(task: Task, messages: Sequence[Message]) -> Message:
        right = env.oracle(task, messages)
        return assistant("Answer: refused because_no") if right.content else right

    rewards = play(env, task, policy)[-1][-1]
    assert rewards == {"resolved": 1.0, "reason": 0.0, "brief": 0.0}


def test_many_calls_cost_a_little():
    env = make(1)
    task = env.tasks()[0]
    order = {"order_id": task["turns"][0]["request"][2]}

    def policy(task: Task, messages: Sequence[Message]) -> Message:
        if len(messages) == 2:
            return assistant("", *[("get_order", order)] * 7)
        return env.oracle(task, [*messages[:2], *messages[10:]])

    rewards = play(env, task, policy)[-1][-1]
    assert rewards == {"resolved": 1.0, "reason": 1.0, "brief": 0.0}


def test_a_customer_who_begs_is_refused_again():
    """The second turn comes after the first answer, and giving in costs everything."""
    env = make(4)
    begging = [
        task
        for task in (env.tasks()[i] for i in range(60))
        if task["turns"][1]["request"] == task["turns"][0]["request"]
    ]

    assert len(begging) > 5
    for task in begging[:5]:
        steps = play(env, task, env.oracle)
        assert [task["turns"][1]["text"]] in [step[0] for step in steps]

        def gives_in(task: Task, messages: Sequence[Message]) -> Message:
            users = sum(message.role == "user" for message in messages)
            return env.oracle(task, messages) if users == 1 else assistant("Answer: done")

        assert play(env, task, gives_in)[-1][-1] == NOTHING
