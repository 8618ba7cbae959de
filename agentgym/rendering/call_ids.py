"""Ids of calls as a model family writes them; most take any text.

Ours (`call_0_turn_2`) are unique in a trajectory. Mistral's templates refuse ids that are not nine
letters or digits, and Kimi's show no name but the one inside the id.
"""

import re
from hashlib import sha256

_NUMBER = re.compile(r"\d+")


def call_id_for(dialect: str, call_id: str, tool: str) -> str:
    """The id that the templates of a dialect are handed for a call of `tool`."""
    match dialect:
        case "mistral":
            return sha256(call_id.encode()).hexdigest()[:9]
        case "kimi":
            number = _NUMBER.search(call_id)
            return f"functions.{tool}:{number[0] if number else 0}"
    return call_id
