"""Tools of MCP servers, as tools of an env.

A session is opened and closed by one task on a loop of its own, because the SDK ties connections to
the task that made them; calls may come from any thread or loop. So a session can belong to one
episode or be shared by many, and closing it always ends the server's process.
"""

import asyncio
import atexit
import json
import os
import re
import threading
import weakref
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from agentgym.errors import ConfigError, EnvError, MissingExtraError, ToolError, boundary
from agentgym.tools.base import Tool
from agentgym.tools.foreign import Limits, foreign_tool, json_schema_check

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_NAME = 64
_MAX_PAGES = 100
_CLOSE_S = 15.0


class McpServer(BaseModel):
    """Where a server is: a command to start (stdio), or the URL of one that runs (HTTP)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: str | None = None
    """Program to start; it ends with the session."""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    """Environment variables, beside the few that every server gets."""
    cwd: str | None = None
    url: str | None = None
    """Of a streamable-HTTP endpoint, such as http://localhost:8000/mcp."""
    headers: dict[str, str] = {}
    only: tuple[str, ...] | None = None
    """Names of the tools to offer; all if left out."""
    connect_timeout_s: float = Field(30.0, gt=0)
    limits: Limits = Limits()
    """Of each call."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("an MCP server is a command or a url: give one of the two")
        return self

    def __str__(self) -> str:
        return self.url or " ".join((self.command or "", *self.args))


class McpSession:
    """An open connection to a server, and its tools; close it, or use it in a `with`."""

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self.tools: tuple[Tool, ...] = ()
        self._client: Any = None
        self._ready: Future[None] = Future()
        self._over: Future[None] = Future()
        self._stop: asyncio.Event | None = None
        self._is_closed = False

    @classmethod
    def open(cls, server: McpServer) -> Self:
        """Connect and list the tools; blocks.

        Raises:
            MissingExtraError: the SDK is not installed.
            ConfigError: the server cannot be started, or what it offers cannot be used.
            EnvError: it does not answer.
        """
        session = cls(server)
        session._start()
        session._ready.result()
        return session

    @classmethod
    async def aopen(cls, server: McpServer) -> Self:
        """`open` for an event loop."""
        session = cls(server)
        session._start()
        try:
            await asyncio.shield(asyncio.wrap_future(session._ready))
        except asyncio.CancelledError:
            session._ask_to_stop()
            raise
        return session

    def close(self) -> None:
        """End the session, and the server if it was started here; a second call does nothing.

        Raises:
            EnvError: it does not end.
        """
        self._ask_to_stop()
        try:
            self._over.result(_CLOSE_S)
        except TimeoutError as error:
            raise self._endless() from error

    async def aclose(self) -> None:
        """`close` for an event loop."""
        self._ask_to_stop()
        try:
            await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(self._over)), _CLOSE_S)
        except TimeoutError as error:
            raise self._endless() from error

    def _endless(self) -> EnvError:
        return EnvError(f"MCP server {str(self.server)!r}: the session does not end")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_open(self) -> bool:
        return self._client is not None and not self._over.done()

    def _start(self) -> None:
        _refuse_without_sdk()
        _open_sessions.add(self)
        _loop().call_soon_threadsafe(lambda: _keep(asyncio.ensure_future(self._live())))

    def _ask_to_stop(self) -> None:
        self._is_closed = True
        _loop().call_soon_threadsafe(self._set_stop)

    def _set_stop(self) -> None:
        if self._stop is not None:
            self._stop.set()

    async def _live(self) -> None:
        """The whole session, in one task."""
        self._stop = asyncio.Event()
        if self._is_closed:
            self._stop.set()
        try:
            with boundary(EnvError, "session"):
                await self._connected()
        except ConfigError as error:
            self._fail(error)
        except EnvError as error:
            self._fail(EnvError(f"MCP server {str(self.server)!r}: {error}"))
        finally:
            self._client = None
            if not self._ready.done():
                self._ready.set_exception(EnvError("the session was closed"))
            self._over.set_result(None)

    def _fail(self, error: ConfigError | EnvError) -> None:
        if not self._ready.done():
            self._ready.set_exception(error)

    async def _connected(self) -> None:
        client = _client(self.server)
        assert self._stop is not None
        connecting = asyncio.timeout(self.server.connect_timeout_s)
        try:
            async with connecting:
                await client.__aenter__()
                try:
                    self.tools = await self._list(client)
                except BaseException:
                    await client.__aexit__(None, None, None)
                    raise
        except TimeoutError as error:
            limit = f"{self.server.connect_timeout_s:g} s"
            raise EnvError(f"no answer within {limit} of connecting") from error
        except ExceptionGroup as error:
            inner = _first(error)
            raise EnvError(f"{type(inner).__name__}: {inner}") from error
        except OSError as error:
            raise ConfigError(
                f"cannot start the MCP server {str(self.server)!r}: {error}"
            ) from error
        try:
            self._client = client
            self._ready.set_result(None)
            await self._stop.wait()
        finally:
            self._client = None
            await client.__aexit__(None, None, None)

    async def _list(self, client: Any) -> tuple[Tool, ...]:
        found, cursor = [], None
        for _ in range(_MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            found += page.tools
            cursor = page.next_cursor
            if cursor is None:
                break
        return self._chosen({tool.name: tool for tool in found})

    def _chosen(self, offered: Mapping[str, Any]) -> tuple[Tool, ...]:
        wanted: Collection[str] = offered if self.server.only is None else self.server.only
        missing = sorted(set(wanted) - offered.keys())
        if missing:
            known = ", ".join(sorted(offered)) or "none"
            raise ConfigError(f"MCP server {self.server} has no tool {missing[0]!r}: {known}")
        tools = tuple(self._make_tool(offered[name]) for name in wanted)
        names = [tool.name for tool in tools]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(f"MCP server {self.server} has two tools that read as {twice[0]!r}")
        return tools

    def _make_tool(self, offered: Any) -> Tool:
        schema = dict(offered.input_schema)
        schema.setdefault("properties", {})

        async def call(arguments: dict[str, Any]) -> str:
            return await self._call(offered.name, arguments)

        return foreign_tool(
            _NOT_IN_NAMES.sub("_", offered.name)[:_MAX_NAME],
            call,
            description=offered.description or "",
            parameters=schema,
            check=json_schema_check(schema),
            limits=self.server.limits,
        )

    async def _call(self, name: str, arguments: dict[str, Any]) -> str:
        """Text of a tool's result, from whatever loop this is.

        Raises:
            ToolError: the tool says that it failed, or the server refuses the call.
            EnvError: the session is over.
        """
        if not self.is_open:
            raise EnvError(f"MCP server {str(self.server)!r}: the session is over")
        waiting = asyncio.run_coroutine_threadsafe(self._call_here(name, arguments), _loop())
        return await asyncio.wrap_future(waiting)

    async def _call_here(self, name: str, arguments: dict[str, Any]) -> str:
        from mcp import MCPError

        client, timeout_s = self._client, self.server.limits.timeout_s
        if client is None:
            raise EnvError(f"MCP server {str(self.server)!r}: the session is over")
        try:
            with boundary(EnvError, f"MCP server {str(self.server)!r}"):
                result = await client.call_tool(name, arguments, read_timeout_seconds=timeout_s + 1)
        except EnvError as error:
            cause = error.__cause__
            if isinstance(cause, MCPError) and "closed" not in str(cause).lower():
                raise ToolError(f"tool {name!r} failed: {cause.error.message}") from error
            raise
        text = _to_text(result)
        if result.is_error:
            raise ToolError(text or f"tool {name!r} failed")
        return text


def mcp_tools(server: McpServer) -> McpSession:
    """Connect to a server; its tools are `.tools` of the session, which the caller closes."""
    return McpSession.open(server)


def _client(server: McpServer) -> Any:
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    if server.url is not None:
        http = create_mcp_http_client(headers=server.headers or None)
        return Client(streamable_http_client(server.url, http_client=http))
    parameters = StdioServerParameters(
        command=server.command or "", args=list(server.args), env=server.env, cwd=server.cwd
    )
    return Client(stdio_client(parameters, errlog=_nowhere()))


def _to_text(result: Any) -> str:
    """What a model can read of a result; other kinds of content are named, not shown."""
    texts = [_block_text(block) for block in result.content]
    if not texts and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "\n".join(texts)


def _block_text(block: Any) -> str:
    match block.type:
        case "text":
            return str(block.text)
        case "image" | "audio":
            return f"[{block.type}, {block.mime_type}, not shown]"
        case "resource" if "text" in type(block.resource).model_fields:
            return str(block.resource.text)
        case "resource":
            return f"[resource {block.resource.uri}, not shown]"
        case "resource_link":
            return f"[resource {block.uri}]"
        case kind:
            return f"[{kind}, not shown]"


def _first(error: BaseException) -> BaseException:
    """The error inside the groups that task groups make of it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _refuse_without_sdk() -> None:
    try:
        import mcp  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtraError("MCP", "mcp") from error


class _Shared:
    """The loop all sessions live on, and where their servers' complaints go."""

    lock = threading.Lock()
    loop: asyncio.AbstractEventLoop | None = None
    thread: threading.Thread | None = None
    nowhere: Any = None


_open_sessions: "weakref.WeakSet[McpSession]" = weakref.WeakSet()
_tasks: "set[asyncio.Future[None]]" = set()


def _loop() -> asyncio.AbstractEventLoop:
    with _Shared.lock:
        if _Shared.loop is None or _Shared.thread is None or not _Shared.thread.is_alive():
            _Shared.loop = asyncio.new_event_loop()
            run: Callable[[], None] = _Shared.loop.run_forever
            _Shared.thread = threading.Thread(target=run, name="agentgym-mcp", daemon=True)
            _Shared.thread.start()
        return _Shared.loop


def _nowhere() -> Any:
    if _Shared.nowhere is None:
        _Shared.nowhere = open(os.devnull, "w")  # noqa: SIM115 - as long as the process
    return _Shared.nowhere


def _keep(task: "asyncio.Future[None]") -> None:
    """The loop itself keeps tasks only weakly."""
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


def _close_all() -> None:
    sessions = [session for session in _open_sessions if not session._over.done()]
    for session in sessions:
        session._ask_to_stop()
    for session in sessions:
        try:
            session._over.result(_CLOSE_S)
        except TimeoutError:
            return


atexit.register(_close_all)
