"""Ctrl-C asks, and asks again."""

import signal

import pytest

from agentgym.commands.stopping import StopRequest


def test_a_handler_prints_nothing_and_the_next_safe_place_says_it_once():
    """A signal may arrive within a print, and the printer cannot be entered twice."""
    said: list[str] = []
    stop = StopRequest(lambda: said.append("stopping"))

    def step() -> None:
        with stop, stop.held_back():
            stop.announce()
            signal.raise_signal(signal.SIGINT)
            assert (said, stop.is_asked) == ([], True)
            stop.announce()
            stop.announce()

    with pytest.raises(KeyboardInterrupt):
        step()
    assert said == ["stopping"]


def test_the_second_interrupt_is_raised_where_it_arrives():
    """A step may take many minutes."""
    passed: list[int] = []

    def step() -> None:
        with StopRequest(lambda: None) as stop, stop.held_back():
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.raise_signal(number)
                passed.append(number)

    with pytest.raises(KeyboardInterrupt):
        step()
    assert passed == [signal.SIGINT]
