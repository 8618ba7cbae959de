"""How the launcher of `agentgym serve` starts a server, waits for it, and lets it end."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from agentgym.engines.vllm.launching import Launch, run_server
from agentgym.engines.vllm.ports import free_port
from agentgym.errors import EngineError


@pytest.mark.parametrize(
    ("code", "timeout_s", "message"),
    [
        ("raise SystemExit(3)", 30.0, "vLLM ended with code 3 before it was ready"),
        ("import time; time.sleep(60)", 0.2, "vLLM was not ready within 0.2 s"),
    ],
)
def test_a_server_that_does_not_get_ready_is_an_error(
    code: str, timeout_s: float, message: str, tmp_path: Path
) -> None:
    """And is not left behind."""
    argv = [sys.executable, "-S", "-c", code, str(tmp_path)]
    launch = Launch(
        argv=argv,
        environment=os.environ,
        url=f"http://127.0.0.1:{free_port()}",
        timeout_s=timeout_s,
    )
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(EngineError, match=message):
        run_server(launch, ready="")

    assert signal.getsignal(signal.SIGTERM) is handler
    assert not any(str(tmp_path).encode() in words for words in command_lines())


def test_a_signal_before_the_server_is_ready_is_no_success(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Else `agentgym serve ... && ...` would go on without a server, and nothing had been said."""
    code = "import os, time; os.kill(os.getppid(), 2); time.sleep(60)"
    launch = Launch(
        argv=[sys.executable, "-S", "-c", code, str(tmp_path)],
        environment=os.environ,
        url=f"http://127.0.0.1:{free_port()}",
        timeout_s=30.0,
    )
    with pytest.raises(KeyboardInterrupt):
        run_server(launch, ready="ready")

    assert capfd.readouterr() == ("", "stopped before vLLM was ready\n")
    assert not any(str(tmp_path).encode() in words for words in command_lines())


def test_a_server_that_nohup_started_outlives_its_terminal() -> None:
    """It would end without a word, as if somebody had asked it to."""
    code = "import os, time; os.kill(os.getppid(), 1); time.sleep(0.1); raise SystemExit(3)"
    launch = Launch(
        argv=[sys.executable, "-S", "-c", code],
        environment=os.environ,
        url=f"http://127.0.0.1:{free_port()}",
        timeout_s=30.0,
    )
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with pytest.raises(EngineError, match="vLLM ended with code 3"):
            run_server(launch, ready="")
    finally:
        signal.signal(signal.SIGHUP, before)


IMPOLITE = """
import os
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    is_up = False

    def do_GET(self):
        if Handler.is_up:
            self.send_response(200)
            self.send_header("X-Agentgym-Launch", os.environ["AGENTGYM_LAUNCH"])
            self.end_headers()
        else:
            self.wfile.write(b"not yet\\r\\n")
        Handler.is_up = True

with HTTPServer(("127.0.0.1", PORT), Handler) as server:
    server.handle_request()
    server.handle_request()
raise SystemExit(7)
"""


def test_a_server_gets_ready_whatever_it_says_first_and_whatever_proxy_there_is(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A proxy of the environment would look for the server on its own machine. That it breaks
    later is told."""
    monkeypatch.setattr("agentgym.engines.vllm.launching._ASK_EVERY_S", 0.05)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    port = free_port()
    launch = Launch(
        argv=[sys.executable, "-S", "-c", IMPOLITE.replace("PORT", str(port))],
        environment=os.environ,
        url=f"http://127.0.0.1:{port}",
        timeout_s=10,
    )
    with pytest.raises(EngineError, match="vLLM ended with code 7; see above why"):
        run_server(launch, ready="ready")

    assert capfd.readouterr().out == "ready\n"


def test_who_else_answers_on_the_port_is_not_the_server(capfd: pytest.CaptureFixture[str]) -> None:
    """It was taken while the server was starting, and vLLM ends for it."""
    answer = IMPOLITE.replace("is_up = False", "is_up = True").replace("PORT", "0")
    answer = answer.replace("server.handle_request()", "", 1).replace(
        "    server", "    print(server.server_port, flush=True); server"
    )
    somebody = [sys.executable, "-S", "-c", answer]
    with subprocess.Popen(
        somebody, stdout=subprocess.PIPE, text=True, env={**os.environ, "AGENTGYM_LAUNCH": "other"}
    ) as other:
        assert other.stdout is not None
        launch = Launch(
            argv=[sys.executable, "-S", "-c", "import time; time.sleep(0.3); raise SystemExit(1)"],
            environment=os.environ,
            url=f"http://127.0.0.1:{other.stdout.readline().strip()}",
            timeout_s=10,
        )
        with pytest.raises(EngineError, match="vLLM ended with code 1 before it was ready"):
            run_server(launch, ready="ready")

    assert (other.returncode, capfd.readouterr().out) == (7, "")


def command_lines() -> Iterator[bytes]:
    """Of all processes of this machine."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            yield path.read_bytes()
