"""The shop's records and what can be done to them; whether it may be done is not asked here.

Only mechanics are enforced: what does not exist cannot be changed, what is not in stock cannot be
sent. A refund against the rules goes through, as it would in a real back office, and shows in the
final state.
"""

from typing import Any, Literal

from agentgym.errors import ToolError

Method = Literal["money", "credit"]
Record = dict[str, Any]


class Database:
    """Customers, orders and products of one episode.

    `tables` is plain JSON and all the state there is: two databases are equal if their tables are.
    """

    def __init__(self, tables: dict[str, dict[str, Record]]) -> None:
        self.tables = tables

    def customer(self, email: str) -> Record:
        """The customer with this address."""
        return self._find("customers", email.strip().lower(), "customer with the email")

    def order(self, order_id: str) -> Record:
        """The order with this number."""
        return self._find("orders", order_id.strip().upper().removeprefix("#"), "order")

    def product(self, product_id: str) -> Record:
        """The product with this number."""
        return self._find("products", product_id.strip().upper(), "product")

    def orders_of(self, email: str) -> dict[str, Record]:
        """Orders of a customer by number."""
        wanted = email.strip().lower()
        return {key: row for key, row in self.tables["orders"].items() if row["email"] == wanted}

    def refund(self, order_id: str, method: Method) -> str:
        """Pay an order's price back once more, to the card or as store credit."""
        order = self.order(order_id)
        order["refunded"] += order["price"]
        if method == "credit":
            self.customer(order["email"])["credit"] += order["price"]
        order["refund_method"] = method
        return f"refunded {order['price']} dollars as {method}"

    def cancel(self, order_id: str) -> str:
        """Cancel an order that has not arrived."""
        order = self.order(order_id)
        if order["status"] in {"delivered", "cancelled"}:
            raise ToolError(f"an order that is {order['status']} cannot be cancelled")
        order["status"] = "cancelled"
        return "cancelled"

    def change_address(self, order_id: str, address: str) -> str:
        """Send an order elsewhere."""
        self.order(order_id)["address"] = " ".join(address.split()).rstrip(".")
        return "address changed"

    def exchange(self, order_id: str, product_id: str) -> str:
        """Send another product in place of the order's."""
        order, product = self.order(order_id), self.product(product_id)
        if product["stock"] < 1:
            raise ToolError(f"product {product_id} is out of stock")
        product["stock"] -= 1
        self.product(order["product"])["stock"] += 1
        order["product"] = product_id.strip().upper()
        return f"exchanged for {product['name']}"

    def give_credit(self, email: str, dollars: int) -> str:
        """Give a customer store credit as an apology."""
        if dollars < 1:
            raise ToolError(f"dollars must be at least 1, got {dollars}")
        customer = self.customer(email)
        customer["credit"] += dollars
        customer["apologies"] += dollars
        return f"{dollars} dollars of store credit given"

    def _find(self, table: str, key: str, what: str) -> Record:
        found = self.tables[table].get(key)
        if found is None:
            raise ToolError(f"there is no {what} {key[:40]!r}")
        return found
