"""What all tests of E2B have in common."""

import pytest


@pytest.fixture(autouse=True)
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little time between the tries: the stand-in does not get better by waiting."""
    monkeypatch.setattr("agentgym.tools.sandbox.e2b.pace.BASE_S", 0.02)
