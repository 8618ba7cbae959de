"""Ctrl-C during training: the first asks for an end after this step, the second ends it now."""

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Catches interrupts while it is entered.

    Args:
        on_request: called once, at the first.
    """

    def __init__(self, on_request: Callable[[], None]) -> None:
        self.is_asked = False
        self._on_request = on_request
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            self._handlers[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.is_asked:
            raise KeyboardInterrupt
        self.is_asked = True
        self._on_request()
