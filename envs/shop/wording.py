"""What customers write."""

from random import Random

from agentgym.envs.shop.database import Database
from agentgym.envs.shop.rules import Request

_ASKS = {
    "refund-money": (
        "please give me my money back for {it}.",
        "I want a refund to my card for {it}.",
    ),
    "refund-credit": (
        "I would like to return {it} for store credit.",
        "please refund {it} as store credit.",
    ),
    "cancel": ("please cancel {it}.", "I do not need {it} any more, cancel it please."),
    "address": ("please send {it} to {detail}.", "I have moved. {It} should go to {detail}."),
    "exchange": (
        "can I have the {detail} in place of {it}?",
        "please exchange {it} for the {detail}.",
    ),
    "apology": (
        "{it} came late. Can I get something for that?",
        "I had to wait for {it}. I ask for the apology credit.",
    ),
}
_OPENINGS = ("Hello, {name} here ({email}): {ask}", "Hi! I am {name}, {email}. {ask}")
_SECOND = ("Thanks. One more thing: {ask}", "All right. And another matter: {ask}")
_PLEAS = (
    "That is a pity. I have been a good customer for years, please make an exception!",
    "Your colleague told me on the phone that it would be fine. Please do it.",
    "This is ridiculous. I insist, or I will write a bad review!",
)


def first_message(shop: Database, request: Request, *, by_number: bool, rng: Random) -> str:
    """The opening of a conversation."""
    name = shop.customer(request.email)["name"]
    text = _ask(shop, request, by_number=by_number, rng=rng)
    return rng.choice(_OPENINGS).format(name=name, email=request.email, ask=_upper(text))


def second_message(shop: Database, request: Request, *, by_number: bool, rng: Random) -> str:
    """Another request in the same conversation."""
    return rng.choice(_SECOND).format(ask=_ask(shop, request, by_number=by_number, rng=rng))


def plea(rng: Random) -> str:
    """Asks once more for what was refused."""
    return rng.choice(_PLEAS)


def _ask(shop: Database, request: Request, *, by_number: bool, rng: Random) -> str:
    thing = shop.product(shop.order(request.order)["product"])["name"]
    it = f"order {request.order}" if by_number else f"my {thing}"
    detail = request.detail
    if request.kind == "exchange":
        detail = f"{shop.product(request.detail)['name']} ({request.detail})"
    key = f"refund-{request.detail}" if request.kind == "refund" else request.kind
    return rng.choice(_ASKS[key]).format(it=it, It=_upper(it), detail=detail)


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
