"""Tools of real MCP servers, over stdio and over HTTP on loopback."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="needs the extra 'mcp'")

from pydantic import ValidationError

from agentgym.envs import Episode, Task, TaskSet, ToolEnv
from agentgym.envs.adapters.mcp import WithMcpTools
from agentgym.errors import ConfigError, EnvError
from agentgym.messages import assistant
from agentgym.tools import tool
from agentgym.tools.foreign import Limits
from agentgym.tools.mcp import McpServer, McpSession, mcp_tools

SCRIPT = Path(__file__).with_name("mcp_servers") / "plain.py"
OURS = f"tests-of-{os.getpid()}"
SERVE = ("-X", OURS, str(SCRIPT))
"""Arguments of Python, which takes the first two for an option that it does not know."""
STDIO = McpServer(command=sys.executable, args=SERVE)


def children() -> set[int]:
    """Processes that run the server for these tests, orphans included."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if OURS.encode() in command:
            found.add(int(folder.name))
    return found


@pytest.fixture(scope="module")
def stdio() -> Iterator[McpSession]:
    with mcp_tools(STDIO) as session:
        yield session


@pytest.fixture(scope="module")
def http() -> Iterator[McpSession]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [sys.executable, *SERVE, str(port)]
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        with mcp_tools(McpServer(url=f"http://127.0.0.1:{port}/mcp")) as session:
            yield session
    finally:
        process.kill()
        process.wait()


@pytest.fixture(params=["stdio", "http"])
def session(request: pytest.FixtureRequest) -> McpSession:
    found: McpSession = request.getfixturevalue(request.param)
    return found


async def called(session: McpSession, name: str, **arguments: Any) -> tuple[str, str | None]:
    by_name = {tool.name: tool for tool in session.tools}
    result = await by_name[name].call(arguments)
    return result.content, result.error


def test_schemas_are_passed_through(session: McpSession) -> None:
    """The model reads what the server wrote; names are made such that a model can call them."""
    schemas = {tool.name: tool.to_schema()["function"] for tool in session.tools}

    assert {"add", "files_read", "remember", "table"} <= schemas.keys()
    assert schemas["add"]["description"] == "Add two numbers."
    assert schemas["add"]["parameters"]["properties"]["b"]["minimum"] == 0
    assert schemas["add"]["parameters"]["required"] == ["a", "b"]


async def test_results_are_text(session: McpSession) -> None:
    """Structure as JSON with its letters; what cannot be read is named."""
    assert await called(session, "add", a=1, b=2) == ("3", None)
    assert json.loads((await called(session, "table"))[0]) == {"rows": [1, 2], "ö": [3]}
    assert await called(session, "picture") == ("[image, image/png, not shown]", None)


async def test_bad_arguments_never_reach_the_server(session: McpSession) -> None:
    """Each is named."""
    text, error = await called(session, "add", a="1", b=-2)

    assert error == "bad_arguments"
    assert "argument 'a': '1' is not of type 'integer'" in text
    assert "argument 'b': -2 is less than the minimum of 0" in text
    assert "'b' is a required property" in (await called(session, "add", a=1))[0]


async def test_a_failing_tool_is_told_to_the_model(session: McpSession) -> None:
    """As the server words it."""
    text, error = await called(session, "files_read", path="/x")

    assert error == "tool_error"
    assert "files.read" in text


async def test_calls_run_at_the_same_time_and_from_any_loop(stdio: McpSession) -> None:
    """A session is shared by loops and threads."""
    together = await asyncio.gather(*(called(stdio, "add", a=i, b=1) for i in range(20)))
    elsewhere = await asyncio.to_thread(lambda: asyncio.run(called(stdio, "add", a=1, b=1)))

    assert together == [(str(i + 1), None) for i in range(20)]
    assert elsewhere == ("2", None)


@pytest.mark.slow
async def test_a_slow_tool_is_left_behind() -> None:
    """With the text of every tool that takes too long; closing ends the server all the same."""
    before = children()
    hasty = STDIO.model_copy(update={"limits": Limits(timeout_s=0.3), "only": ("sleep",)})
    session = await McpSession.aopen(hasty)
    started = time.monotonic()
    text, error = await called(session, "sleep", seconds=60)
    assert (text, error) == ("tool 'sleep': timeout after 0.3 s", "timeout")
    assert time.monotonic() - started < 5
    await session.aclose()
    assert children() == before


async def test_a_server_that_dies_is_no_fault_of_the_model() -> None:
    """The episode fails; the session can still be closed, twice."""
    session = await McpSession.aopen(STDIO)
    by_name = {tool.name: tool for tool in session.tools}
    with pytest.raises(EnvError, match=r"MCP server .*plain\.py"):
        await by_name["die"].call({})
    with pytest.raises(EnvError, match="MCP server"):
        await by_name["add"].call({"a": 1, "b": 2})
    await session.aclose()
    await session.aclose()
    with pytest.raises(EnvError, match="the session is over"):
        await by_name["add"].call({"a": 1, "b": 2})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("server", "error", "complaint"),
    [
        (McpServer(command="/no/such/program"), ConfigError, "cannot start the MCP server"),
        (McpServer(command="sleep", args=("60",), connect_timeout_s=0.5), EnvError, "no answer"),
        (McpServer(command=sys.executable, args=("-c", "1")), EnvError, "MCP server"),
        (McpServer(url="http://127.0.0.1:9/mcp"), EnvError, r"127\.0\.0\.1:9.*ConnectError"),
        (STDIO.model_copy(update={"only": ("ad",)}), ConfigError, "has no tool 'ad'"),
    ],
)
def test_a_server_that_cannot_be_used_is_one_line(
    server: McpServer, error: type[Exception], complaint: str
) -> None:
    """And leaves no process."""
    before = children()
    with pytest.raises(error, match=complaint) as caught:
        mcp_tools(server)
    assert "\n" not in str(caught.value)
    assert children() == before


def test_a_server_is_a_command_or_a_url() -> None:
    """Not both, not neither."""
    with pytest.raises(ValidationError, match="one of the two"):
        McpServer()
    with pytest.raises(ValidationError, match="one of the two"):
        McpServer(command="x", url="http://x")


@tool
async def own() -> str:
    """A tool of the env itself."""
    return "mine"


class Plain(ToolEnv):
    """Asks nothing in particular."""

    tools = (own,)

    def tasks(self, split: str = "train") -> TaskSet:
        return TaskSet.procedural(lambda index: Task(id=str(index)))

    def prompt(self, task: Task) -> str:
        return "?"

    async def score(self, episode: Episode) -> dict[str, float | None]:
        return {"score": 1.0}


async def remembered(env: WithMcpTools) -> list[str]:
    calls = assistant("", ("remember", {"amount": 2}), ("own", {}))
    return [message.content for message in (await env.astep(calls))[0]]


@pytest.mark.slow
async def test_a_session_of_its_own_begins_anew_with_every_episode() -> None:
    """State of the server is the episode's; closing the env ends the process."""
    before = children()
    env = WithMcpTools(Plain(), [STDIO])
    await env.areset(seed=0)
    assert [tool.name for tool in env.tools][:2] == ["own", "add"]
    assert await remembered(env) == ["2", "mine"]
    assert await remembered(env) == ["4", "mine"]
    await env.areset(seed=0)
    assert await remembered(env) == ["2", "mine"]
    assert len(children() - before) == 1
    await env.aclose()
    await env.aclose()
    assert children() == before


async def test_a_shared_session_outlives_its_envs(http: McpSession) -> None:
    """Its owner closes it."""
    for expected in ("2", "4"):
        env = WithMcpTools(Plain(), [http])
        await env.areset(seed=0)
        assert await remembered(env) == [expected, "mine"]
        await env.aclose()
    assert http.is_open


@pytest.mark.slow
def test_the_process_ends_with_a_session_left_open() -> None:
    """And takes the server with it."""
    before = children()
    code = (
        "import sys; from agentgym.tools.mcp import McpServer, mcp_tools\n"
        f"s = mcp_tools(McpServer(command=sys.executable, args={SERVE!r}))\n"
        "print(len(s.tools))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    assert done.stdout == "7\n", done.stderr
    assert children() == before
