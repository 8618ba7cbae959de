"""`agentgym rollout --policy openai:URL`: a server plays through the loop that training uses."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from agentgym.cli import main
from agentgym.trajectory import read_jsonl

CALL = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "1+1"}}\n</tool_call>'


class Handler(BaseHTTPRequestHandler):
    """Calls the tool first, then answers; keeps what it was asked."""

    asked: list[tuple[str, dict[str, Any]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append((self.path, body))
        seen = json.dumps(body.get("messages") or body["prompt"])
        text = "Answer: 2" if "tool_response" in seen.partition("calculator")[2] else CALL
        is_chat = self.path.endswith("/chat/completions")
        said = {"message": {"content": text}} if is_chat else {"text": text}
        reply = json.dumps({"choices": [{**said, "finish_reason": "stop"}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    Handler.asked.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("kind", ["openai", "openai-chat"])
def test_a_server_plays_and_its_text_becomes_a_trajectory(
    kind: str, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prompts are completed, or the conversation is handed over with the tools told in words."""
    out = tmp_path / "out.jsonl"
    flags = ("--policy", f"{kind}:{url}#served", "--n", "1", "--out", str(out))
    code = main(["rollout", "--env", "calculator", *flags])
    capsys.readouterr()

    (output,) = read_jsonl(out)
    assert code == 0
    assert output.stop_reason == "final_answer"
    assert output.num_turns == 2
    assert output.rollout_infos["num_tool_calls"] == 1
    assert {body["model"] for _, body in Handler.asked} == {"served"}
    assert ("chat" in Handler.asked[0][0]) == (kind == "openai-chat")


def test_an_address_that_is_none_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["rollout", "--env", "calculator", "--policy", "openai:nowhere", "--n", "1"])

    assert code == 2
    assert "'nowhere' must begin with http://" in capsys.readouterr().err
