"""Cells of data sets: JSON inside strings, single items in place of lists, packed test cases."""

import ast
import base64
import binascii
import io
import json
import pickle
import zlib
from typing import Any

from agentgym.errors import ConfigError

_MAX_WRAPPED = 3
_MAX_UNPACKED = 512 * 2**20


def decoded(value: Any, what: str) -> Any:
    """The value of a cell that may be JSON, or Python's notation of it, inside a string.

    Raises:
        ConfigError: it is neither.
    """
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        pass
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        raise ConfigError(f"{what} is no JSON: {value[:60]!r}") from None


def unwrapped(value: Any, what: str) -> Any:
    """`decoded`, again while that gives a text: for objects that were written as JSON twice.

    Raises:
        ConfigError: there is no value in it.
    """
    for _ in range(_MAX_WRAPPED):
        value = decoded(value, what)
    return value


def text_of(value: Any) -> str:
    """An input or output as text: lines where they come as a list."""
    if isinstance(value, list | tuple):
        return "\n".join(map(text_of, value))
    return value if isinstance(value, str) else json.dumps(value)


def unpacked(value: str) -> Any:
    """Hidden tests of LiveCodeBench: JSON, or a pickled string of it, compressed, in base64.

    Raises:
        ConfigError: it is something else, or holds objects.
    """
    if value.lstrip().startswith("["):
        return decoded(value, "private_test_cases")
    try:
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(base64.b64decode(value), _MAX_UNPACKED)
        text = _NoObjects(io.BytesIO(data)).load()
    except (binascii.Error, zlib.error, pickle.UnpicklingError, EOFError, ValueError) as error:
        raise ConfigError(f"private_test_cases cannot be read: {error}") from error
    return decoded(text, "private_test_cases")


class _NoObjects(pickle.Unpickler):
    """Reads pickled text and numbers, and imports nothing."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it holds a {module}.{name}")


def first_of(row: dict[str, Any], *keys: str) -> Any:
    """The first of these cells that is not empty; `None` if all are."""
    return next((row[key] for key in keys if row.get(key) not in (None, "", [], {})), None)
