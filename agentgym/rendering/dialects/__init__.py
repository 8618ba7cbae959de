"""How model families write tool calls, by name."""

from agentgym.errors import NotRegisteredError
from agentgym.rendering.base import Dialect
from agentgym.rendering.dialects.hermes import HermesDialect

DIALECTS: dict[str, Dialect] = {"hermes": HermesDialect()}


def dialect(name: str) -> Dialect:
    """The dialect registered under `name`.

    Raises:
        NotRegisteredError: unknown name; names a near one.
    """
    if name not in DIALECTS:
        raise NotRegisteredError("dialect", name, sorted(DIALECTS))
    return DIALECTS[name]
