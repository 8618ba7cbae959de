"""What a machine says: bounded while it speaks, and read with distrust.

Foreign code can be root in there, so nothing of it is believed but that the question was answered.
"""

import asyncio
import base64
import json
import zlib
from typing import Any, NamedTuple

from agentgym.tools.sandbox.e2b.errors import ServiceError

MOST_BYTES = 64 * 2**20
"""Of one answer."""


class Ear:
    """Puts a limit off as long as something is heard, but not without end.

    Args:
        limit: of the call that is listened to.
        silence_s: how long it may say nothing.
        most_s: how long it may take, whatever it says.
    """

    def __init__(self, limit: asyncio.Timeout, silence_s: float, most_s: float) -> None:
        self._limit, self._silence_s = limit, silence_s
        self._last = asyncio.get_running_loop().time() + most_s
        self._heard = 0

    def hear(self, message: Any) -> None:
        self._heard += len(message.line)
        if self._heard > MOST_BYTES:
            raise ValueError(f"the machine sent more than {MOST_BYTES} bytes")
        patience = asyncio.get_running_loop().time() + self._silence_s
        self._limit.reschedule(min(patience, self._last))


class Answer(NamedTuple):
    """Of the bridge."""

    answers: list[dict[str, Any]]
    lost: str
    token: str


def read(execution: Any, marker: str) -> Answer:
    """What stands between the markers.

    Raises:
        ServiceError: nothing does, because the interpreter was interrupted or ended.
    """
    parts = "".join(execution.logs.stdout).split(marker)
    if len(parts) != 3:
        said = execution.error.name if execution.error else "it said nothing"
        raise ServiceError(f"the interpreter did not answer: {said}")
    try:
        answer = Answer(**json.loads(_unpacked(parts[1])))
    except (ValueError, TypeError, RecursionError, zlib.error) as error:
        raise ServiceError(f"the interpreter answered nonsense: {error}") from error
    answers, *texts = answer
    if not isinstance(answers, list) or not all(isinstance(a, dict) for a in answers):
        raise ServiceError("the interpreter answered nonsense")
    if not all(isinstance(text, str) for text in texts):
        raise ServiceError("the interpreter answered nonsense")
    return answer


def _unpacked(text: str) -> bytes:
    unpacker = zlib.decompressobj()
    data = unpacker.decompress(base64.b64decode(text), MOST_BYTES)
    if unpacker.unconsumed_tail:
        raise ValueError(f"more than {MOST_BYTES} bytes")
    return data
