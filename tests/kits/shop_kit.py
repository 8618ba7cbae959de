"""Conversations in the shop: their levels, indices and splits, and how one is played."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from hypothesis import settings

from agentgym.envs import Task
from agentgym.envs.shop import ShopEnv
from agentgym.envs.shop.rules import Request
from agentgym.envs.shop.tasks import LEVELS
from agentgym.messages import Message, assistant

EVERY_LEVEL = tuple(LEVELS)
Policy = Callable[[Task, Sequence[Message]], Message]
few = settings(max_examples=30, deadline=None)
NOTHING = {"resolved": 0.0, "reason": 0.0, "brief": 0.0}
EVERYTHING = {"resolved": 1.0, "reason": 1.0, "brief": 1.0}


def make(*chosen: int) -> ShopEnv:
    return ShopEnv(chosen or EVERY_LEVEL)


def play(env: ShopEnv, task: Task, policy: Policy) -> list[tuple[Any, ...]]:
    """Every step of an episode; the last one brings the rewards."""
    return asyncio.run(aplay(env, task, policy))


async def aplay(env: ShopEnv, task: Task, policy: Policy) -> list[tuple[Any, ...]]:
    messages, _ = await env.areset(seed=0, options={"task": task})
    steps: list[tuple[Any, ...]] = []
    while not steps or not (steps[-1][2] or steps[-1][3]):
        messages.append(policy(task, messages))
        observation, reward, terminated, truncated, info = await env.astep(messages[-1])
        messages += observation
        texts = [message.content for message in observation]
        steps.append((texts, reward, terminated, truncated, info.get("rewards")))
    await env.aclose()
    return steps


def tells_the_outcome_without_looking(task: Task, messages: Sequence[Message]) -> Message:
    number = sum(message.role == "user" for message in messages) - 1
    reason = task["turns"][number]["reason"]
    return assistant("Answer: done" if reason is None else f"Answer: refused {reason}")


def does_everything(task: Task, messages: Sequence[Message]) -> Message:
    """Looks, then uses every tool that changes something, then claims the right outcome."""
    request = Request(*task["turns"][0]["request"])
    order = {"order_id": request.order}
    product = next(iter(task["tables"]["products"]))
    if messages[-1].role == "tool":
        return tells_the_outcome_without_looking(task, messages)
    return assistant(
        "",
        ("get_order", order),
        ("refund_order", {**order, "method": "money"}),
        ("cancel_order", order),
        ("change_address", {**order, "address": "1 Oak Street"}),
        ("exchange_order", {**order, "product_id": product}),
        ("give_credit", {"email": request.email, "dollars": 10}),
    )


def random_clerk(rng: Random) -> Policy:
    """Calls that fit, with orders and products that exist, then a guess."""

    def policy(task: Task, messages: Sequence[Message]) -> Message:
        if rng.random() < 0.3:
            return assistant(rng.choice(["Answer: done", "Answer: refused too_late", "hm"]))
        order = {"order_id": rng.choice(list(task["tables"]["orders"]))}
        email = rng.choice(list(task["tables"]["customers"]))
        calls: list[tuple[str, dict[str, Any]]] = [
            ("get_order", order),
            ("get_customer", {"email": email}),
            ("refund_order", {**order, "method": rng.choice(["money", "credit", "cash"])}),
            ("cancel_order", order),
            ("give_credit", {"email": email, "dollars": rng.randint(-5, 30)}),
        ]
        return assistant("", rng.choice(calls))

    return policy
