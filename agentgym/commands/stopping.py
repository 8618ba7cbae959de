"""Ctrl-C during training: the first asks for an end after this step, the second ends it now.

A signal may arrive in the middle of a print, so its handler only sets a flag; what is to be said
about it is said at the next place where something could be printed anyway.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Turns interrupts into `KeyboardInterrupt` while it is entered, and holds one back in steps.

    Args:
        on_request: called once, by `announce`, when an interrupt was held back.
    """

    def __init__(self, on_request: Callable[[], None]) -> None:
        self.is_asked = False
        """Whether an interrupt was held back."""
        self._on_request = on_request
        self._is_announced = False
        self._holds_back = False
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            self._handlers[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """Within the block the first interrupt only sets `is_asked`; it is raised at the end."""
        self._holds_back = True
        try:
            yield
        finally:
            self._holds_back = False
        if self.is_asked:
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.is_asked or not self._holds_back:
            raise KeyboardInterrupt
        self.is_asked = True

    def announce(self) -> None:
        """Say that an interrupt was held back, unless that has been said; never from a handler."""
        if self.is_asked and not self._is_announced:
            self._is_announced = True
            self._on_request()
