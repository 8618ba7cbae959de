"""Ctrl-C during training: the first asks for an end after this step, the second ends it now."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Turns interrupts into `KeyboardInterrupt` while it is entered, and holds one back in steps.

    Args:
        on_request: called when an interrupt is held back.
    """

    def __init__(self, on_request: Callable[[], None]) -> None:
        self.is_asked = False
        """Whether an interrupt was held back."""
        self._on_request = on_request
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
        self._on_request()
