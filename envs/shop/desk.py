"""The tools of the clerk: thin, typed doors to the database."""

from collections.abc import Callable
from typing import Any

from agentgym.envs.shop.database import Database, Method
from agentgym.tools import Tool, tool


class Desk:
    """What one clerk can do, and which orders were looked up.

    Args:
        shop: gives the database of the episode that is being played.
        seen: gives the set of orders that were looked up in it.
    """

    def __init__(self, shop: Callable[[], Database], seen: Callable[[], set[str]]) -> None:
        self._shop = shop
        self._seen = seen

    @property
    def tools(self) -> tuple[Tool, ...]:
        reading = (self.get_customer, self.get_order, self.get_product)
        writing = (
            self.refund_order,
            self.cancel_order,
            self.change_address,
            self.exchange_order,
            self.give_credit,
        )
        return (*map(tool, reading), *(tool(parallel=False)(door) for door in writing))

    async def get_customer(self, email: str) -> dict[str, Any]:
        """Get a customer with the numbers and products of their orders.

        Args:
            email: The customer's email address.
        """
        shop = self._shop()
        customer = shop.customer(email)
        orders = {
            number: shop.product(order["product"])["name"]
            for number, order in shop.orders_of(email).items()
        }
        return {**customer, "orders": orders}

    async def get_order(self, order_id: str) -> dict[str, Any]:
        """Get an order: status, price, dates in days, refunds, address, owner.

        Args:
            order_id: The order's number, such as W1234.
        """
        order = self._shop().order(order_id)
        self._seen().add(order_id.strip().upper().removeprefix("#"))
        return dict(order)

    async def get_product(self, product_id: str) -> dict[str, Any]:
        """Get a product's name, price and stock.

        Args:
            product_id: The product's number, such as P101.
        """
        return dict(self._shop().product(product_id))

    async def refund_order(self, order_id: str, method: Method) -> str:
        """Refund the price of an order.

        Args:
            order_id: The order's number.
            method: To the card (money) or as store credit (credit).
        """
        return self._shop().refund(order_id, method)

    async def cancel_order(self, order_id: str) -> str:
        """Cancel an order.

        Args:
            order_id: The order's number.
        """
        return self._shop().cancel(order_id)

    async def change_address(self, order_id: str, address: str) -> str:
        """Change where an order is sent.

        Args:
            order_id: The order's number.
            address: The new address, as the customer wrote it.
        """
        return self._shop().change_address(order_id, address)

    async def exchange_order(self, order_id: str, product_id: str) -> str:
        """Exchange the product of an order for another one.

        Args:
            order_id: The order's number.
            product_id: The number of the new product.
        """
        return self._shop().exchange(order_id, product_id)

    async def give_credit(self, email: str, dollars: int) -> str:
        """Give a customer store credit as an apology.

        Args:
            email: The customer's email address.
            dollars: How much.
        """
        return self._shop().give_credit(email, dollars)
