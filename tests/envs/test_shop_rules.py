"""The shop's rules, the mechanics of its database, and which outcomes are read."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shop_kit import few

from agentgym.envs.shop.database import Database
from agentgym.envs.shop.rules import Request, decide
from agentgym.envs.shop.scoring import read_outcome
from agentgym.errors import ToolError


def order(**changes: Any) -> dict[str, Any]:
    return {
        "email": "a@x",
        "product": "P1",
        "price": 20,
        "status": "delivered",
        "delivered_days_ago": 10,
        "days_late": 0,
        "final_sale": False,
        "refunded": 0,
        "refund_method": None,
        "address": "1 Oak Street",
    } | changes


def shop(apologies: int = 0, **changes: Any) -> Database:
    product = {"name": "red mug", "thing": "mug", "price": 20, "stock": 1}
    products = {"P1": product, "P2": product | {"price": 25}, "P3": product | {"stock": 0}}
    customer = {"name": "A", "credit": 0, "apologies": apologies}
    tables = {"customers": {"a@x": customer}, "orders": {"W1": order(**changes)}}
    return Database(deepcopy({**tables, "products": {**products, "P4": dict(product)}}))


@pytest.mark.parametrize(
    ("kind", "detail", "changes", "reason"),
    [
        ("refund", "money", {}, None),
        ("refund", "money", {"delivered_days_ago": 30}, None),
        ("refund", "money", {"delivered_days_ago": 31}, "too_late"),
        ("refund", "credit", {"delivered_days_ago": 31}, None),
        ("refund", "credit", {"delivered_days_ago": 61}, "too_late"),
        ("refund", "money", {"status": "shipped"}, "not_delivered"),
        ("refund", "money", {"refunded": 20, "final_sale": True}, "already_refunded"),
        ("refund", "credit", {"final_sale": True, "delivered_days_ago": 90}, "final_sale"),
        ("refund", "money", {"email": "b@x"}, "not_owner"),
        ("cancel", "", {"status": "pending"}, None),
        ("cancel", "", {"status": "shipped"}, "not_pending"),
        ("cancel", "", {"status": "cancelled"}, "not_pending"),
        ("address", "2 Mill Lane", {"status": "pending"}, None),
        ("address", "2 Mill Lane", {}, "not_pending"),
        ("exchange", "P4", {}, None),
        ("exchange", "P4", {"status": "pending"}, "not_delivered"),
        ("exchange", "P4", {"delivered_days_ago": 31}, "too_late"),
        ("exchange", "P2", {}, "other_price"),
        ("exchange", "P3", {}, "out_of_stock"),
        ("apology", "", {"days_late": 5}, None),
        ("apology", "", {"days_late": 4}, "not_late"),
        ("apology", "", {"days_late": 5, "apologies": 10}, None),
        ("apology", "", {"days_late": 5, "apologies": 20}, "over_limit"),
    ],
)
def test_the_rules(kind: Any, detail: str, changes: dict[str, Any], reason: str | None):
    """As the text says them, at their edges."""
    assert decide(shop(**changes), Request(kind, "a@x", "W1", detail)) == reason


def test_the_mechanics():
    """What each tool changes, and nothing else."""
    before = shop()
    after = shop()
    assert after.refund("#w1", "credit") == "refunded 20 dollars as credit"
    after.refund("W1", "money")
    after.exchange("W1", "p4")
    after.give_credit("A@X ", 7)
    after.change_address("W1", " 2  Mill Lane. ")

    assert after.tables["customers"]["a@x"] == {"name": "A", "credit": 27, "apologies": 7}
    assert after.order("W1") == order(
        refunded=40, refund_method="money", product="P4", address="2 Mill Lane"
    )
    assert after.product("P4")["stock"] == 0
    assert after.product("P1")["stock"] == 2
    assert after.tables != before.tables


@pytest.mark.parametrize(
    "act",
    [
        lambda shop: shop.refund("W2", "money"),
        lambda shop: shop.cancel("W1"),
        lambda shop: shop.exchange("W1", "P3"),
        lambda shop: shop.exchange("W1", "P9"),
        lambda shop: shop.give_credit("b@x", 5),
        lambda shop: shop.give_credit("a@x", 0),
        lambda shop: shop.customer("nobody"),
    ],
)
def test_what_cannot_be_done_changes_nothing(act: Callable[[Database], Any]):
    tried = shop()
    with pytest.raises(ToolError):
        act(tried)

    assert tried.tables == shop().tables


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("Answer: done", ("done", None)),
        ("I am sorry.\n**Answer: refused too_late**", ("refused", "too_late")),
        ("answer: Refused, NOT_OWNER.", ("refused", "not_owner")),
        ("Answer: refused", ("refused", None)),
        ("Answer: done and refused", None),
        ("Answer: refused too_late not_owner", None),
        ("Answer: done\nAnswer: done", None),
        ("done", None),
        ("Answer: done. Bye!", None),
        ("", None),
    ],
)
def test_which_outcomes_are_read(text: str, outcome: tuple[str, str | None] | None):
    assert read_outcome(text) == outcome


@given(st.text(max_size=40))
@few
def test_reading_an_outcome_never_fails(text: str):
    assert read_outcome(text) is None
    outcome = read_outcome(f"Answer: refused {text}")
    assert outcome is None or outcome[0] == "refused"
