"""The perfect clerk: finds the order, looks at what the rules need, acts, and says so."""

import json
from collections.abc import Sequence
from typing import Any

from agentgym.envs.shop.rules import APOLOGY, Request
from agentgym.messages import Message, assistant
from agentgym.trajectory import Task

Call = tuple[str, dict[str, Any]]


def oracle(task: Task, messages: Sequence[Message]) -> Message:
    """The next assistant message."""
    number = sum(message.role == "user" for message in messages) - 1
    turn = task["turns"][number]
    last_user = max(i for i, message in enumerate(messages) if message.role == "user")
    results = [message.content for message in messages[last_user:] if message.role == "tool"]
    calls = _calls(turn, results)
    if len(results) < len(calls):
        return assistant("", calls[len(results)])
    reason = turn["reason"]
    return assistant("Answer: done" if reason is None else f"Answer: refused {reason}")


def _calls(turn: dict[str, Any], results: Sequence[str]) -> list[Call]:
    request = Request(*turn["request"])
    needs_customer = request.order not in turn["text"] or request.kind == "apology"
    calls: list[Call] = [("get_customer", {"email": request.email})] if needs_customer else []
    order_id = _order_id(turn, request, results)
    calls.append(("get_order", {"order_id": order_id}))
    if request.kind == "exchange":
        calls.append(("get_product", {"product_id": request.detail}))
    return calls if turn["reason"] else [*calls, _action(request, order_id)]


def _order_id(turn: dict[str, Any], request: Request, results: Sequence[str]) -> str:
    """The number as written, or of the order whose product the customer names."""
    if request.order in turn["text"] or not results:
        return request.order
    orders: dict[str, str] = json.loads(results[0])["orders"]
    named = [number for number, product in orders.items() if product in turn["text"]]
    return named[0] if len(named) == 1 else request.order


def _action(request: Request, order_id: str) -> Call:
    match request.kind:
        case "refund":
            return "refund_order", {"order_id": order_id, "method": request.detail}
        case "cancel":
            return "cancel_order", {"order_id": order_id}
        case "address":
            return "change_address", {"order_id": order_id, "address": request.detail}
        case "exchange":
            return "exchange_order", {"order_id": order_id, "product_id": request.detail}
        case "apology":
            return "give_credit", {"email": request.email, "dollars": APOLOGY}
