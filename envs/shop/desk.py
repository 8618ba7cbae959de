"""The tools of the clerk: thin, typed doors to the database of the trajectory that calls.

They are made once for all episodes; what belongs to one is in the `Desk` that its state holds.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from agentgym.envs.shop.database import Database, Method
from agentgym.envs.shop.rules import Kind
from agentgym.tools import Tool, ToolContext, tool


@dataclass(slots=True)
class Desk:
    """What one episode's clerk works with."""

    shop: Database
    seen: set[str] = field(default_factory=set)
    """Numbers of the orders that were looked up."""

    @classmethod
    def of(cls, context: ToolContext) -> "Desk":
        """The desk of the trajectory that calls."""
        desk = context.state["desk"]
        assert isinstance(desk, cls)
        return desk


@tool
async def get_customer(email: str, context: ToolContext) -> dict[str, Any]:
    """Get a customer with the numbers and products of their orders.

    Args:
        email: The customer's email address.
    """
    shop = Desk.of(context).shop
    customer = shop.customer(email)
    orders = {
        number: shop.product(order["product"])["name"]
        for number, order in shop.orders_of(email).items()
    }
    return {**customer, "orders": orders}


@tool
async def get_order(order_id: str, context: ToolContext) -> dict[str, Any]:
    """Get an order: status, price, dates in days, refunds, address, owner.

    Args:
        order_id: The order's number, such as W1234.
    """
    desk = Desk.of(context)
    order = desk.shop.order(order_id)
    desk.seen.add(order_id.strip().upper().removeprefix("#"))
    return dict(order)


@tool
async def get_product(product_id: str, context: ToolContext) -> dict[str, Any]:
    """Get a product's name, price and stock.

    Args:
        product_id: The product's number, such as P101.
    """
    return dict(Desk.of(context).shop.product(product_id))


@tool(parallel=False)
async def refund_order(order_id: str, method: Method, context: ToolContext) -> str:
    """Refund the price of an order.

    Args:
        order_id: The order's number.
        method: To the card (money) or as store credit (credit).
    """
    return Desk.of(context).shop.refund(order_id, method)


@tool(parallel=False)
async def cancel_order(order_id: str, context: ToolContext) -> str:
    """Cancel an order.

    Args:
        order_id: The order's number.
    """
    return Desk.of(context).shop.cancel(order_id)


@tool(parallel=False)
async def change_address(order_id: str, address: str, context: ToolContext) -> str:
    """Change where an order is sent.

    Args:
        order_id: The order's number.
        address: The new address, as the customer wrote it.
    """
    return Desk.of(context).shop.change_address(order_id, address)


@tool(parallel=False)
async def exchange_order(order_id: str, product_id: str, context: ToolContext) -> str:
    """Exchange the product of an order for another one.

    Args:
        order_id: The order's number.
        product_id: The number of the new product.
    """
    return Desk.of(context).shop.exchange(order_id, product_id)


@tool(parallel=False)
async def give_credit(email: str, dollars: int, context: ToolContext) -> str:
    """Give a customer store credit as an apology.

    Args:
        email: The customer's email address.
        dollars: How much.
    """
    return Desk.of(context).shop.give_credit(email, dollars)


_FOR_KIND: dict[Kind, tuple[Tool, ...]] = {
    "refund": (refund_order,),
    "cancel": (cancel_order,),
    "address": (change_address,),
    "exchange": (get_product, exchange_order),
    "apology": (get_customer, give_credit),
}


def tools_for(kinds: Collection[Kind], *, by_number: bool) -> tuple[Tool, ...]:
    """What a clerk needs for these kinds of requests, and to find orders that have no number."""
    needed = [get_order, *([] if by_number else [get_customer])]
    needed += [one for kind, tools in _FOR_KIND.items() if kind in kinds for one in tools]
    return tuple(dict.fromkeys(needed))
