"""A small shop by chance: products, customers, and orders in every state."""

from random import Random

from agentgym.envs.shop.database import Record

_FIRST = ("Ada", "Ben", "Cleo", "Dev", "Eva", "Finn", "Gia", "Hugo", "Ines", "Jon", "Kira", "Leo")
_LAST = ("Abel", "Bauer", "Costa", "Diaz", "Evans", "Fuchs", "Gupta", "Holm", "Ito", "Jansen")
_THINGS = ("lamp", "kettle", "backpack", "blanket", "clock", "radio", "chair", "tent", "mug", "fan")
_COLOURS = ("red", "blue", "green", "black", "white")
_STREETS = ("Oak Street", "Mill Lane", "High Street", "Park Road", "Lake Drive")
_PRICES = (15, 20, 25, 40, 60, 80)
_NUM_CUSTOMERS = 3
_ORDERS_EACH = 2

Tables = dict[str, dict[str, Record]]


def draw_tables(rng: Random) -> Tables:
    """Three customers with two orders each, of different things."""
    things = rng.sample(_THINGS, _NUM_CUSTOMERS * _ORDERS_EACH)
    products: dict[str, Record] = {}
    for thing in things:
        _add_variants(products, thing, rng)
    customers = _customers(rng)
    orders: dict[str, Record] = {}
    owners = [email for email in customers for _ in range(_ORDERS_EACH)]
    for thing, email in zip(things, owners, strict=True):
        ids = [key for key, product in products.items() if product["thing"] == thing]
        order_id = f"W{rng.randint(1000, 9999)}"
        while order_id in orders:
            order_id = f"W{rng.randint(1000, 9999)}"
        orders[order_id] = _order(email, ids[0], products, rng)
    return {"customers": customers, "orders": orders, "products": products}


def _add_variants(products: dict[str, Record], thing: str, rng: Random) -> None:
    """The one that was ordered, one of the same price, one of another, one out of stock."""
    price, other = rng.sample(_PRICES, 2)
    for colour, (cost, stock) in zip(
        rng.sample(_COLOURS, 4), ((price, 5), (price, 3), (other, 4), (price, 0)), strict=True
    ):
        key = f"P{len(products) + 100 + rng.randint(0, 3) * 100}"
        name = f"{colour} {thing}"
        products[key] = {"name": name, "thing": thing, "price": cost, "stock": stock}


def _customers(rng: Random) -> dict[str, Record]:
    found: dict[str, Record] = {}
    for first, last in zip(
        rng.sample(_FIRST, _NUM_CUSTOMERS), rng.sample(_LAST, _NUM_CUSTOMERS), strict=True
    ):
        email = f"{first}.{last}@example.com".lower()
        apologies = rng.choice((0, 0, 10, 20))
        found[email] = {"name": f"{first} {last}", "credit": apologies, "apologies": apologies}
    return found


def draw_address(rng: Random) -> str:
    """A house in a street."""
    return f"{rng.randint(1, 99)} {rng.choice(_STREETS)}"


def _order(email: str, product: str, products: dict[str, Record], rng: Random) -> Record:
    status = rng.choice(("pending", "shipped", "delivered", "delivered", "delivered"))
    delivered = status == "delivered"
    price = products[product]["price"]
    refunded = price if delivered and rng.random() < 0.15 else 0
    return {
        "email": email,
        "product": product,
        "price": price,
        "status": status,
        "delivered_days_ago": rng.choice((3, 12, 25, 29, 33, 45, 58, 64, 90))
        if delivered
        else None,
        "days_late": rng.choice((0, 0, 2, 4, 5, 6, 9)) if delivered else 0,
        "final_sale": rng.random() < 0.15,
        "refunded": refunded,
        "refund_method": "money" if refunded else None,
        "address": draw_address(rng),
    }
