"""Who listens to others is told that there is no login."""

import os
import signal
import subprocess
import sys

import pytest


@pytest.mark.parametrize(("host", "is_open"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_an_open_address_is_said_to_be_open(host: str, is_open: bool):
    """On loopback there is nothing to warn of."""
    process = subprocess.Popen(
        [sys.executable, "-m", "agentgym", "serve-env", "calculator", "--host", host, "--port=0"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    second = process.stdout.readline() if is_open else ""
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=30)

    assert first.startswith("serving calculator at http://")
    assert ("no login" in second + rest) is is_open
