"""`agentgym train` whose server dies, hangs, comes back or is another one.

It ends in time with one line and can be gone on with, or it recovers.
"""

import json
import os
import queue
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import warm_kit
from vllm_engine_kit import CONTEXT, Ground
from vllm_kit import START_S, Served, serving, settings_for
from warm_kit import Program

from agentgym.cli import main
from agentgym.engines.vllm.server_command import ServerSettings
from agentgym.trainer.tiny_policy import PATH
from agentgym.trajectory import read_jsonl

pytestmark = pytest.mark.vllm

PATIENCE_S = START_S
TIMEOUT_S = 10.0
"""For a server, where it will not come back: longer than a step of the model on a busy machine."""
FIRST, STEPS = 1, 2
"""Steps before something happens, and of the whole run."""


@dataclass
class Run:
    """`agentgym train` in a process of its own."""

    folder: Path
    process: Program
    out: list[str] = field(default_factory=list)
    err: list[str] = field(default_factory=list)
    _news: "queue.Queue[str | None]" = field(default_factory=queue.Queue)
    _readers: list[threading.Thread] = field(default_factory=list)

    def listen(self) -> None:
        """Collect what it says, as it comes."""
        for stream, lines in ((self.process.stdout, self.out), (self.process.stderr, self.err)):
            reader = threading.Thread(target=self._read, args=(stream, lines), daemon=True)
            reader.start()
            self._readers.append(reader)

    def _read(self, stream: Any, lines: list[str]) -> None:
        for line in stream:
            lines.append(line.rstrip("\n"))
            self._news.put(line)
        self._news.put(None)

    def until(self, words: str) -> None:
        """Wait until it has said so."""
        ends = time.monotonic() + PATIENCE_S
        while words not in (self._news.get(timeout=max(ends - time.monotonic(), 0.1)) or ""):
            if self.process.poll() is not None:
                pytest.fail(f"it ended: {self.out} {self.err}")

    def code(self) -> int:
        """How it ended."""
        code = self.process.wait(PATIENCE_S)
        for reader in self._readers:
            reader.join(10)
        return code

    @property
    def steps(self) -> list[int]:
        """That it has made."""
        return [row["step"] for row in self.rows]

    @property
    def rows(self) -> list[Any]:
        lines = (self.folder / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


@contextmanager
def train(folder: Path, *flags: str) -> Iterator[Run]:
    """A run, ended if it has not."""
    environment = {
        **os.environ,
        "PYTHONWARNINGS": "ignore",  # of what TRL thinks of this vLLM
    }
    words = ("-m", "agentgym", "train", "--run-dir", folder, *flags)
    process = warm_kit.start(*words, cwd=Path.cwd(), env=environment)
    run = Run(folder, process)
    run.listen()
    try:
        yield run
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(20)


def begin(folder: Path, url: str, timeout_s: float) -> tuple[str, ...]:
    """Flags of a run that keeps nothing before its end."""
    return (
        *("--server-url", url, "--server-timeout", str(timeout_s), "--eval-tasks", "0"),
        *("--steps", str(STEPS), "--save-steps", "100", "--probe-every", "1"),
    )


def url_of(server: Ground) -> str:
    assert server.served is not None
    return server.served.url


def wait_for_turns(url: str) -> None:
    """Return in the middle of a window."""
    ends = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends:
        with urllib.request.urlopen(url + "/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        running = [line for line in lines if line.startswith("vllm:num_requests_running{")]
        if any(float(line.split()[-1]) > 4 for line in running):
            return
        time.sleep(0.02)
    pytest.fail("nothing is sampled")


@contextmanager
def standing_still(server: Ground) -> Iterator[None]:
    """Its processes stop, with all their connections open."""
    assert server.served is not None
    group = server.served.process.pid
    os.killpg(group, signal.SIGSTOP)
    try:
        yield
    finally:
        os.killpg(group, signal.SIGCONT)


def failures(folder: Path) -> list[str | None]:
    """Errors of all trajectories that a run has kept."""
    files = sorted((folder / "trajectories").glob("step-*.jsonl"))
    return [o.error for file in files for o in read_jsonl(file) if o.stop_reason.is_failure]


def test_a_server_of_another_model_is_refused_before_anything_is_loaded(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, at once, and nothing on disk."""
    started = time.monotonic()
    code = main(["train", "--run-dir", str(tmp_path / "run"), "--server-url", served.url])
    out = capsys.readouterr()

    assert code == 2
    assert out.out == ""
    assert f"{served.url} serves '{served.model}', and this is a run of" in out.err
    assert out.err.count("\n") == 1
    assert time.monotonic() - started < 30
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def server() -> Iterator[Ground]:
    """Of the policy; whoever kills it starts it again."""
    ground = Ground(settings())
    ground.start()
    yield ground
    ground.stop()


def settings() -> ServerSettings:
    """A short queue: a window of 64 trajectories fills it."""
    return settings_for(PATH, max_context=CONTEXT, extra=("--max-num-queued-reqs", "24"))


def test_a_key_that_is_wrong_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(settings(), key="right") as served:
        monkeypatch.setenv("VLLM_API_KEY", "wrong")
        code = main(["train", "--run-dir", str(tmp_path / "run"), "--server-url", served.url])
        line = capsys.readouterr().err

    expected = f"agentgym: {served.url} wants another API key than that of VLLM_API_KEY\n"
    assert (code, line) == (2, expected)
    assert not (tmp_path / "run").exists()


def test_a_server_that_stands_still_ends_the_run_in_time(server: Ground, tmp_path: Path) -> None:
    """Its connections stay open; once it goes on, so does the run."""
    folder, url = tmp_path / "run", url_of(server)
    with train(folder, *begin(folder, url, TIMEOUT_S)) as run:
        run.until(f"step {FIRST}/{STEPS}")
        wait_for_turns(url)
        with standing_still(server):
            stopped = time.monotonic()
            code = run.code()
            took = time.monotonic() - stopped
    kept = run.steps
    with train(folder, "--resume") as resumed:
        resumed_code = resumed.code()

    *others, warning, error = run.err
    assert (code, others) == (1, [])
    assert took < 2 * TIMEOUT_S + 30
    assert f"{url} does not answer (no answer within" in warning
    assert f"{url} was not there within {TIMEOUT_S:g} s" in error
    assert f"step {kept[-1]} is kept, go on with: agentgym train --resume --run-dir" in error
    assert (resumed_code, resumed.err) == (0, [])
    assert resumed.steps == list(range(1, STEPS + 1))
    assert not failures(folder)


def test_a_server_that_is_killed_and_started_again_is_gone_on_with(
    server: Ground, tmp_path: Path
) -> None:
    """It has the weights it was started with; it gets the policy's, and plays the window anew."""
    folder, url = tmp_path / "run", url_of(server)
    with train(folder, *begin(folder, url, START_S)) as run:
        run.until(f"step {FIRST}/{STEPS}")
        wait_for_turns(url)
        server.kill()
        run.until("does not answer")
        server.start()
        code = run.code()

    assert code == 0, run.err
    assert run.steps == list(range(1, STEPS + 1))
    assert not failures(folder)
    *others, gone, back, again = run.err
    assert others == []
    assert gone.startswith(f"{url} does not answer (")
    assert back == f"{url} answers again"
    assert "restarted" in again
    assert "what was played is played anew" in again


def test_a_server_that_is_killed_ends_the_run_which_goes_on_at_a_new_one(
    server: Ground, tmp_path: Path
) -> None:
    """Exit code 1 and one line; every step that was made is kept, and none is made on a rest."""
    folder, url = tmp_path / "run", url_of(server)
    with train(folder, *begin(folder, url, TIMEOUT_S)) as run:
        run.until(f"step {FIRST}/{STEPS}")
        wait_for_turns(url)
        server.kill()
        killed = time.monotonic()
        code = run.code()
        took = time.monotonic() - killed
    last = run.steps[-1]
    server.start()
    with train(folder, "--resume", "--server-url", url_of(server)) as resumed:
        resumed_code = resumed.code()

    *others, warning, error = run.err
    assert (code, others) == (1, [])
    assert took < TIMEOUT_S + 30
    assert warning.startswith(f"{url} does not answer (")
    assert f"{url} was not there within {TIMEOUT_S:g} s" in error
    assert f"step {last} is kept, go on with: agentgym train --resume --run-dir" in error
    assert FIRST <= last < STEPS
    assert (resumed_code, resumed.err) == (0, [])
    assert resumed.steps == list(range(1, STEPS + 1))
    assert not failures(folder)
    versions = [row["sync/version"] for row in resumed.rows]
    assert versions == sorted(set(versions))
