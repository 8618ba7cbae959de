"""What the shop allows. The model reads `policy_for`; `decide` is the same in code.

Reasons are checked in the order in which the text lists them, so that every request has exactly
one right outcome.
"""

from collections.abc import Collection
from typing import Literal, NamedTuple

from agentgym.envs.shop.database import Database, Method

Kind = Literal["refund", "cancel", "address", "exchange", "apology"]
MONEY_DAYS = 30
CREDIT_DAYS = 60
LATE_DAYS = 5
APOLOGY = 10
APOLOGY_LIMIT = 20

_OPENING = """You work for a web shop. Look every order up before you decide. Rules, each with \
the reason to refuse:
- Always: the order belongs to the customer who writes, else not_owner."""
_RULES: dict[tuple[Kind, ...], str] = {
    ("refund",): f"""- Refund: the order is delivered, else not_delivered; it has not been \
refunded, else already_refunded; it is no final sale, else final_sale; it was delivered at most \
{MONEY_DAYS} days ago for money, or {CREDIT_DAYS} days ago for store credit, else too_late.""",
    ("cancel", "address"): """- Cancel, or change the address: the order is pending, else \
not_pending.""",
    ("exchange",): f"""- Exchange: the order is delivered, else not_delivered; at most \
{MONEY_DAYS} days ago, else too_late; the new product costs the same, else other_price, and is in \
stock, else out_of_stock.""",
    ("apology",): f"""- Apology: for an order that came {LATE_DAYS} or more days late, else \
not_late, give {APOLOGY} dollars of store credit, unless the customer's apologies would pass \
{APOLOGY_LIMIT} dollars, then over_limit.""",
}
_CLOSING = """Take the first reason in this order. Do nothing that was not asked for, and make no \
exceptions. When a request is settled, end your message with 'Answer: done' or 'Answer: refused \
REASON', for example 'Answer: refused too_late'. The customer may then write again."""


def policy_for(kinds: Collection[Kind]) -> str:
    """The rules for these kinds of requests: what is never asked for needs none."""
    rules = [text for covered, text in _RULES.items() if not set(covered).isdisjoint(kinds)]
    return "\n".join([_OPENING, *rules, _CLOSING])


class Request(NamedTuple):
    """What a customer asks for."""

    kind: Kind
    email: str
    """Of the customer who writes."""
    order: str
    detail: str = ""
    """Of a refund the method, of an address the new one, of an exchange the new product."""


def decide(shop: Database, request: Request) -> str | None:
    """The reason to refuse; `None` if the request is to be fulfilled."""
    if shop.order(request.order)["email"] != request.email:
        return "not_owner"
    checks = {
        "refund": _refund,
        "cancel": _pending,
        "address": _pending,
        "exchange": _exchange,
        "apology": _apology,
    }
    return checks[request.kind](shop, request)


def _refund(shop: Database, request: Request) -> str | None:
    order = shop.order(request.order)
    if order["status"] != "delivered":
        return "not_delivered"
    if order["refunded"]:
        return "already_refunded"
    if order["final_sale"]:
        return "final_sale"
    limit = MONEY_DAYS if request.detail == "money" else CREDIT_DAYS
    return "too_late" if order["delivered_days_ago"] > limit else None


def _pending(shop: Database, request: Request) -> str | None:
    return None if shop.order(request.order)["status"] == "pending" else "not_pending"


def _exchange(shop: Database, request: Request) -> str | None:
    order, wanted = shop.order(request.order), shop.product(request.detail)
    if order["status"] != "delivered":
        return "not_delivered"
    if order["delivered_days_ago"] > MONEY_DAYS:
        return "too_late"
    if wanted["price"] != order["price"]:
        return "other_price"
    return None if wanted["stock"] else "out_of_stock"


def _apology(shop: Database, request: Request) -> str | None:
    if shop.order(request.order)["days_late"] < LATE_DAYS:
        return "not_late"
    given: int = shop.customer(request.email)["apologies"]
    return "over_limit" if given + APOLOGY > APOLOGY_LIMIT else None


def fulfil(shop: Database, request: Request) -> None:
    """Do what was asked for."""
    match request.kind:
        case "refund":
            method: Method = "money" if request.detail == "money" else "credit"
            shop.refund(request.order, method)
        case "cancel":
            shop.cancel(request.order)
        case "address":
            shop.change_address(request.order, request.detail)
        case "exchange":
            shop.exchange(request.order, request.detail)
        case "apology":
            shop.give_credit(request.email, APOLOGY)
