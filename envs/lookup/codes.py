"""How keys and values are written."""

import re

CODE = re.compile(r"[A-Za-z][0-9]{3}")


def normalize(code: str) -> str:
    """As it stands in the table."""
    return code.strip().upper()
