"""`agentgym serve-env`, as a process."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from agentgym.cli import main


@pytest.mark.slow
def test_an_env_is_served_until_it_is_told_to_stop() -> None:
    """On loopback, at a port it names, and gone when it ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "agentgym", "serve-env", "calculator", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline().split()
        assert line[:3] == ["serving", "calculator", "at"]
        assert line[3].startswith("http://127.0.0.1:")
        request = urllib.request.Request(f"{line[3]}/reset", data=b'{"task_index": 0}')
        with urllib.request.urlopen(request, timeout=10) as response:
            told = json.load(response)
        assert told["metadata"]["task_id"] == "train-1-0"
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_port_that_is_taken_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """And exit code 2."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code = main(["serve-env", "calculator", "--port", port])

    assert code == 2
    assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [[], ["calculater"], ["calculator", "--env-args", '{"a": 1}']]
)
def test_what_cannot_be_served_is_one_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Before a port is taken."""
    assert main(["serve-env", *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1
