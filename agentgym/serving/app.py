"""Any env over the OpenEnv protocol: HTTP routes, and a WebSocket per session.

A WebSocket is a session: its env lives as long as the connection. Plain HTTP has no connection to
lean on, so `POST /reset` begins a session that `POST /step` names by its id, until the episode ends
or nobody asks for long.
"""

import asyncio
import json
import weakref
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

from aiohttp import WSCloseCode, WSMsgType, web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentgym.addresses import is_loopback
from agentgym.envs.base import Env
from agentgym.errors import AgentGymError, UsageError
from agentgym.serving import wire
from agentgym.serving.sessions import FactoryError, FullError, Session, Sessions

_MAX_WAITING = 16
_SESSIONS = web.AppKey("sessions", Sessions)
_SOCKETS: "web.AppKey[weakref.WeakSet[web.WebSocketResponse]]" = web.AppKey("sockets")
_HEARTBEAT_S = 30.0
_SWEEP_S = 5.0


@dataclass(frozen=True, kw_only=True)
class ServingLimits:
    """What clients may take."""

    max_sessions: int = 64
    """Envs open at once."""
    timeout_s: float = 120.0
    """Longest a reset or step may take."""
    idle_s: float = 600.0
    """A session over plain HTTP is closed after so long unused."""
    max_message_bytes: int = 4 * 2**20
    """Of one request."""


class _StepRequest(BaseModel):
    model_config = ConfigDict(extra="ignore")

    action: wire.ActionData
    session_id: str | None = None
    episode_id: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)


def make_app(
    make_env: Callable[[], Env],
    *,
    name: str,
    description: str = "",
    limits: ServingLimits | None = None,
) -> web.Application:
    """The server of an env.

    Args:
        make_env: builds the env of one session.
        name: told by `/metadata`.
        description: told by `/metadata`.
        limits: what clients may take.
    """
    limits = limits or ServingLimits()
    app = web.Application(client_max_size=limits.max_message_bytes, middlewares=[_own_origin_only])
    app[_SESSIONS] = Sessions(
        make_env, limit=limits.max_sessions, timeout_s=limits.timeout_s, idle_s=limits.idle_s
    )
    app[_SOCKETS] = weakref.WeakSet()
    told = {"name": name, "description": description, "version": version("agentgym-rl")}
    server = _Server(app[_SESSIONS], limits, told)
    app.add_routes(
        [
            web.get("/health", server.health),
            web.get("/metadata", server.metadata),
            web.get("/schema", server.schema),
            web.get("/state", server.state),
            web.post("/reset", server.reset),
            web.post("/step", server.step),
            web.get("/ws", server.websocket),
        ]
    )
    app.cleanup_ctx.append(_sweeping)
    app.on_shutdown.append(_hang_up)
    return app


class _Server:
    """The routes."""

    def __init__(self, sessions: Sessions, limits: ServingLimits, told: dict[str, str]) -> None:
        self._sessions = sessions
        self._limits = limits
        self._told = told

    async def health(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "healthy"})

    async def metadata(self, request: web.Request) -> web.Response:
        return web.json_response(self._told)

    async def schema(self, request: web.Request) -> web.Response:
        return web.json_response(wire.schemas())

    async def state(self, request: web.Request) -> web.Response:
        wanted = request.query.get("session_id")
        if wanted is None:
            return web.json_response(wire.StateData().model_dump())
        return web.json_response(self._find(wanted).state.model_dump())

    async def reset(self, request: web.Request) -> web.Response:
        data = _validated(wire.ResetData, await _body(request))
        try:
            session = await self._sessions.open()
        except FullError as error:
            raise _refusal(web.HTTPServiceUnavailable, str(error)) from error
        except FactoryError as error:
            raise _refusal(web.HTTPInternalServerError, str(error)) from error
        try:
            told = await self._call(session, session.reset(data))
        except web.HTTPException:
            await self._sessions.close(session)
            raise
        self._sessions.keep(session)
        return web.json_response(told)

    async def step(self, request: web.Request) -> web.Response:
        asked = _validated(_StepRequest, await _body(request))
        wanted = asked.session_id or asked.metadata.get("session_id")
        if not isinstance(wanted, str):
            raise _refusal(
                web.HTTPBadRequest, "name the session: 'session_id' from the metadata of /reset"
            )
        session = self._find(wanted)
        result = await self._call(session, session.step(asked.action))
        if result["done"]:
            await self._sessions.close(session)
        return web.json_response(result)

    async def _call(self, session: Session, work: Any) -> dict[str, Any]:
        try:
            result: dict[str, Any] = await work
        except UsageError as error:
            raise _refusal(web.HTTPBadRequest, str(error)) from error
        except AgentGymError as error:
            await self._sessions.close(session)
            raise _refusal(web.HTTPInternalServerError, str(error)) from error
        except asyncio.CancelledError:
            await self._sessions.close(session)
            raise
        return result

    def _find(self, session_id: str) -> Session:
        session = self._sessions.find(session_id)
        if session is None:
            raise _refusal(web.HTTPNotFound, f"there is no session {session_id[:64]!r}")
        return session

    async def websocket(self, request: web.Request) -> web.WebSocketResponse:
        """One session: messages are answered one after another until the client is gone."""
        socket = web.WebSocketResponse(
            heartbeat=_HEARTBEAT_S, max_msg_size=self._limits.max_message_bytes
        )
        await socket.prepare(request)
        request.app[_SOCKETS].add(socket)
        try:
            session = await self._sessions.open()
        except FullError as error:
            taken = {"active_sessions": self._sessions.num_open}
            told = wire.problem(
                "CAPACITY_REACHED", str(error), max_sessions=self._sessions.limit, **taken
            )
            return await _say_and_close(socket, told)
        except FactoryError as error:
            return await _say_and_close(socket, wire.problem("FACTORY_ERROR", str(error)))
        try:
            await _converse(socket, session)
        finally:
            await self._sessions.close(session)
            await socket.close()
        return socket


async def _converse(socket: web.WebSocketResponse, session: Session) -> None:
    """Read while answering, so that a client that goes away ends the answer it waits for."""
    waiting: asyncio.Queue[str] = asyncio.Queue(_MAX_WAITING)
    answering = asyncio.create_task(_answer_all(socket, session, waiting))
    reading = asyncio.create_task(_read_all(socket, waiting))
    try:
        await asyncio.wait({answering, reading}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (answering, reading):
            task.cancel()
        await asyncio.gather(answering, reading, return_exceptions=True)


async def _read_all(socket: web.WebSocketResponse, waiting: "asyncio.Queue[str]") -> None:
    async for message in socket:
        if message.type is WSMsgType.TEXT:
            await waiting.put(message.data)
        elif message.type is WSMsgType.BINARY:
            await socket.send_json(wire.problem("INVALID_JSON", "messages are JSON text"))


async def _answer_all(
    socket: web.WebSocketResponse, session: Session, waiting: "asyncio.Queue[str]"
) -> None:
    while (reply := await _reply(session, await waiting.get())) is not None:
        await socket.send_json(reply)


async def _reply(session: Session, text: str) -> dict[str, Any] | None:
    """The answer to a message; `None` if it ends the session."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        return wire.problem("INVALID_JSON", f"this is no JSON: {error}")
    if not isinstance(message, dict):
        return wire.problem("VALIDATION_ERROR", "a message is an object with 'type' and 'data'")
    data = message.get("data", {})
    try:
        match message.get("type"):
            case "reset":
                told = await session.reset(wire.ResetData.model_validate(data))
            case "step":
                told = await session.step(wire.ActionData.model_validate(data))
            case "state":
                return {"type": "state", "data": session.state.model_dump()}
            case "close":
                return None
            case kind:
                return wire.problem("UNKNOWN_TYPE", f"unknown message type {str(kind)[:64]!r}")
    except ValidationError as error:
        return wire.problem("VALIDATION_ERROR", wire.explained(error))
    except AgentGymError as error:
        return wire.problem("EXECUTION_ERROR", str(error))
    return {"type": "observation", "data": told}


async def _say_and_close(
    socket: web.WebSocketResponse, told: dict[str, Any]
) -> web.WebSocketResponse:
    await socket.send_json(told)
    await socket.close()
    return socket


async def _body(request: web.Request) -> Any:
    try:
        text = await request.text()
        return json.loads(text) if text.strip() else {}
    except (ValueError, LookupError, RecursionError) as error:
        raise _refusal(web.HTTPBadRequest, f"the body is no JSON: {error}") from error


def _validated(kind: Any, data: Any) -> Any:
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise _refusal(web.HTTPUnprocessableEntity, wire.explained(error)) from error


def _refusal(kind: type[web.HTTPException], text: str) -> web.HTTPException:
    return kind(text=json.dumps({"detail": text}), content_type="application/json")


@web.middleware
async def _own_origin_only(request: web.Request, handler: Any) -> Any:
    """Web pages of others, open in a browser on this machine, may not play."""
    origin = request.headers.get("Origin")
    if origin is not None and (urlsplit(origin).netloc != request.host or _is_renamed(request)):
        raise _refusal(web.HTTPForbidden, f"requests from {origin[:200]} are refused")
    return await handler(request)


def _is_renamed(request: web.Request) -> bool:
    """Whether loopback was reached under another name: a page's own, made to point here."""
    address = None if request.transport is None else request.transport.get_extra_info("sockname")
    is_local = isinstance(address, tuple) and is_loopback(address[0])
    return is_local and not is_loopback(urlsplit(f"//{request.host}").hostname or "")


async def _sweeping(app: web.Application) -> AsyncIterator[None]:
    """Closes forgotten sessions while the server runs, and all of them at its end."""
    sessions = app[_SESSIONS]

    async def sweep() -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            await sessions.close_idle()

    task = asyncio.create_task(sweep())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await sessions.close_kept()


async def _hang_up(app: web.Application) -> None:
    """Closing the connections ends their sessions."""
    sockets = app[_SOCKETS]
    closing = [socket.close(code=WSCloseCode.GOING_AWAY) for socket in list(sockets)]
    await asyncio.gather(*closing, return_exceptions=True)
