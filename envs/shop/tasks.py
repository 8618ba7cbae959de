"""Conversations by level: who writes, what is asked, and the state it should end in."""

from copy import deepcopy
from random import Random
from typing import Any, NamedTuple, get_args

from agentgym.envs.levels import Problem
from agentgym.envs.shop.database import Database
from agentgym.envs.shop.rules import Kind, Request, decide, fulfil
from agentgym.envs.shop.wording import first_message, plea, second_message
from agentgym.envs.shop.world import draw_address, draw_tables

KINDS: tuple[Kind, ...] = get_args(Kind)
_ALLOWED_SHARE = 0.5


class Level(NamedTuple):
    """What makes a conversation harder."""

    kinds: tuple[Kind, ...]
    by_number: bool
    """The customer gives the order's number."""
    follow_up: bool
    """Writes again: begs after a refusal, else asks for something more."""


LEVELS = {
    1: Level(("refund", "cancel", "address"), by_number=True, follow_up=False),
    2: Level(KINDS, by_number=True, follow_up=False),
    3: Level(KINDS, by_number=False, follow_up=False),
    4: Level(KINDS, by_number=False, follow_up=True),
}


def draw(level: int, rng: Random) -> Problem:
    """A shop and a conversation; half of the first requests are to be refused."""
    rules = LEVELS[level]
    shop = Database(draw_tables(rng))
    start = deepcopy(shop.tables)
    first = _wanted(shop, rules, rng)
    text = first_message(shop, first, by_number=rules.by_number, rng=rng)
    turns = [_settle(shop, first, text)]
    if rules.follow_up:
        turns.append(_follow_up(shop, first, turns[0]["reason"], rules, rng))
    identity = "/".join([*first, str(start["orders"][first.order]), turns[-1]["text"]])
    return Problem(identity, {"tables": start, "turns": turns, "goal": shop.tables})


def _wanted(shop: Database, rules: Level, rng: Random) -> Request:
    """A request of a random kind that is fulfilled or refused, as a coin says."""
    kind, allowed = rng.choice(rules.kinds), rng.random() < _ALLOWED_SHARE
    by_reason: dict[str | None, list[Request]] = {}
    for request in _possible(shop, kind, rules, rng):
        by_reason.setdefault(decide(shop, request), []).append(request)
    refused = [reason for reason in by_reason if reason is not None]
    reason = None if (allowed and None in by_reason) or not refused else rng.choice(refused)
    return rng.choice(by_reason[reason])


def _possible(shop: Database, kind: Kind, rules: Level, rng: Random) -> list[Request]:
    emails = list(shop.tables["customers"])
    requests = [
        Request(kind, order["email"], order_id, detail)
        for order_id, order in shop.tables["orders"].items()
        for detail in _details(shop, kind, order_id, rng)
    ]
    if rules.by_number and requests:
        stolen = rng.choice(requests)
        others = [email for email in emails if email != stolen.email]
        requests.append(stolen._replace(email=rng.choice(others)))
    return requests


def _details(shop: Database, kind: Kind, order_id: str, rng: Random) -> list[str]:
    if kind == "refund":
        return ["money", "credit"]
    if kind == "address":
        return [draw_address(rng)]
    if kind != "exchange":
        return [""]
    own = shop.order(order_id)["product"]
    thing = shop.product(own)["thing"]
    products = shop.tables["products"].items()
    return [key for key, product in products if product["thing"] == thing and key != own]


def _settle(shop: Database, request: Request, text: str) -> dict[str, Any]:
    """What is right to do, done."""
    reason = decide(shop, request)
    if reason is None:
        fulfil(shop, request)
    return {"text": text, "request": list(request), "reason": reason}


def _follow_up(
    shop: Database, first: Request, refused: str | None, rules: Level, rng: Random
) -> dict[str, Any]:
    if refused is not None and rng.random() < _ALLOWED_SHARE:
        return {"text": plea(rng), "request": list(first), "reason": refused}
    kinds = rng.sample(rules.kinds, len(rules.kinds))
    own = [r for kind in kinds for r in _possible(shop, kind, rules, rng) if r.email == first.email]
    second = next(request for request in own if request.order != first.order)
    text = second_message(shop, second, by_number=rules.by_number, rng=rng)
    return _settle(shop, second, text)
