"""Environments behind an OpenEnv server, played through its WebSocket.

A connection is a session: it is opened by `reset`, and once it is lost the episode is lost with it,
for a new connection would be another episode. What a message means to the server is read from its
action schema, or said by `action_field`.
Source: the messages of openenv 0.10 (`env_server/types.py`); its package is not needed.
"""

import asyncio
import json
import math
from collections.abc import Awaitable, Mapping
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlsplit

import aiohttp
from pydantic import ValidationError

from agentgym.envs.base import Env, Info, Observation, ResetResult, StepResult
from agentgym.envs.taskset import TaskSet
from agentgym.errors import ConfigError, EnvError
from agentgym.messages import Message, user
from agentgym.tools.base import Tool
from agentgym.tools.foreign import foreign_tool
from agentgym.trajectory import StopReason, Task

T = TypeVar("T")
_SPLITS = ("train", "eval")
_BESIDE = ("done", "reward", "metadata")
_MAX_MESSAGE_BYTES = 64 * 2**20


class OpenEnvEnv(Env):
    """An OpenEnv server's env; reward `score`, the sum of its rewards.

    Args:
        url: of the server, `http://host:port` or `ws://...`.
        action_field: field of the action that gets the policy's text; without it, the only text
            field, or the policy writes the action as JSON.
        observation_field: field of the observation that is shown; without it, the only text field,
            or the observation as JSON.
        reset_args: sent with every reset, such as the server's own options.
        connect_timeout_s: longest a connection may take.
        timeout_s: longest a reset or step may take.
    """

    reward_range = (-math.inf, math.inf)

    def __init__(
        self,
        url: str = "",
        *,
        action_field: str | None = None,
        observation_field: str | None = None,
        reset_args: Mapping[str, Any] | None = None,
        connect_timeout_s: float = 10.0,
        timeout_s: float = 60.0,
    ) -> None:
        self._base = _http_url(url)
        self._action_field = action_field
        self._observation_field = observation_field
        self._reset_args = dict(reset_args or {})
        self._connect_timeout_s = connect_timeout_s
        self._timeout_s = timeout_s
        self._http: aiohttp.ClientSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._schema: dict[str, Any] = {}
        self._score: float | None = None

    def tasks(self, split: str = "train") -> TaskSet:
        """Endless episodes by index: even seeds to train on, odd ones held out.

        Raises:
            ConfigError: the split is neither "train" nor "eval".
        """
        if split not in _SPLITS:
            raise ConfigError(f"split must be one of {list(_SPLITS)}, got {split!r}")
        parity = _SPLITS.index(split)

        def make(index: int) -> Task:
            data = {"seed": 2 * index + parity, "task_split": split, "task_index": index}
            return Task(id=f"{split}-{index}", data=data)

        return TaskSet.procedural(make)

    async def areset(self, *, seed: int | None = None, options: Info | None = None) -> ResetResult:
        """Begin an episode, on the connection of the last one if that still stands."""
        task = self.pick_task(options)
        await self._connect()
        seeded = {} if seed is None else {"seed": seed}
        data = {"episode_id": task.id, **seeded, **task.data, **self._reset_args}
        told = await self._ask("reset", data)
        self._score = _as_reward(told.get("reward"))
        if told.get("done"):
            raise EnvError(f"{self._base}: reset: the episode is over before it began")
        observation = told.get("observation")
        self.tools = _tools(observation)
        how = [] if self._takes_text else [user(self._how_to_act())]
        return [*how, *self._messages(observation)], {"task_id": task.id}

    async def astep(self, action: Any) -> StepResult:
        """Play a message of the policy."""
        assert isinstance(action, Message)
        try:
            data = self._to_action(action)
        except ValueError as error:
            return [user(f"{error} {self._how_to_act()}")], 0.0, False, False, {}
        told = await self._ask("step", data)
        reward = _as_reward(told.get("reward"))
        if reward is not None:
            self._score = reward + (self._score or 0.0)
        done = bool(told.get("done"))
        info = self._ending(told) if done else {}
        truncated = done and bool((told.get("metadata") or {}).get("truncated"))
        messages = self._messages(told.get("observation"))
        return messages, reward or 0.0, done and not truncated, truncated, info

    async def acut(self) -> dict[str, float | None]:
        """What was collected so far."""
        return {"score": self._score} if self.end_episode() else {}

    async def aclose(self) -> None:
        """End the session and the connection."""
        socket, self._socket = self._socket, None
        http, self._http = self._http, None
        try:
            if socket is not None and not socket.closed:
                async with asyncio.timeout(self._connect_timeout_s):
                    await socket.send_json({"type": "close"})
                    await socket.close()
        except (TimeoutError, aiohttp.ClientError, ConnectionError):
            pass
        finally:
            if http is not None:
                await http.close()

    def _ending(self, told: dict[str, Any]) -> Info:
        """The end of an episode; named rewards and reason are those of a server of agentgym."""
        metadata = told.get("metadata") or {}
        named = metadata.get("rewards")
        rewards = named if isinstance(named, dict) and named else {"score": self._score}
        reason = metadata.get("stop_reason")
        return {"rewards": rewards} | ({"stop_reason": reason} if reason in set(StopReason) else {})

    async def _connect(self) -> None:
        if self._socket is not None and not self._socket.closed:
            return
        await self.aclose()
        self._http = aiohttp.ClientSession()
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                self._schema = await _action_schema(self._http, self._base)
                self._socket = await self._http.ws_connect(
                    f"{self._base}/ws", heartbeat=20.0, max_msg_size=_MAX_MESSAGE_BYTES
                )
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            await self.aclose()
            text = str(error) or f"no connection within {self._connect_timeout_s:g} s"
            raise EnvError(f"{self._base}: {text}") from error

    async def _ask(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        """The observation that answers a message.

        Raises:
            EnvError: there was none; the connection is closed unless the server explained itself.
        """
        if self._socket is None or self._socket.closed:
            raise EnvError(f"{self._base}: {kind}: the connection is lost, and the episode with it")
        reply = await self._within(kind, self._exchange(self._socket, kind, data))
        if reply.get("type") == "error":
            told = reply.get("data") or {}
            raise EnvError(f"{self._base}: {kind}: {told.get('code')}: {told.get('message')}")
        answer = reply.get("data")
        if reply.get("type") != "observation" or not isinstance(answer, dict):
            await self._lose(kind, f"answered with {str(reply)[:200]}")
        assert isinstance(answer, dict)
        return answer

    async def _exchange(
        self, socket: aiohttp.ClientWebSocketResponse, kind: str, data: dict[str, Any]
    ) -> dict[str, Any]:
        await socket.send_json({"type": kind, "data": data})
        message = await socket.receive()
        if message.type is not aiohttp.WSMsgType.TEXT:
            raise ConnectionError("the server closed the connection")
        reply = json.loads(message.data)
        if not isinstance(reply, dict):
            raise ConnectionError(f"answered with {message.data[:200]}")
        return reply

    async def _within(self, kind: str, work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await work
        except TimeoutError:
            await self._lose(kind, f"no answer within {self._timeout_s:g} s")
        except (aiohttp.ClientError, ConnectionError, ValueError) as error:
            await self._lose(kind, str(error) or type(error).__name__)
        except asyncio.CancelledError:
            await self._drop()
            raise

    async def _lose(self, kind: str, why: str) -> NoReturn:
        await self._drop()
        raise EnvError(f"{self._base}: {kind}: {why}")

    async def _drop(self) -> None:
        """Close at once, without a farewell: an answer that comes late must not be read."""
        http, self._http, self._socket = self._http, None, None
        if http is not None:
            await http.close()

    @property
    def _properties(self) -> dict[str, Any]:
        found = self._schema.get("properties", {})
        return {name: kind for name, kind in found.items() if name != "metadata"}

    @property
    def _takes_text(self) -> bool:
        return self._text_field() is not None

    def _text_field(self) -> str | None:
        if self._action_field is not None:
            return self._action_field
        if "tool_calls" in self._properties and "content" in self._properties:
            return "content"
        required = set(self._schema.get("required", ()))
        texts = [name for name, kind in self._properties.items() if kind.get("type") == "string"]
        only = texts if len(texts) == 1 else [name for name in texts if name in required]
        return only[0] if len(only) == 1 and required <= set(only) else None

    def _to_action(self, message: Message) -> dict[str, Any]:
        """The action a message means.

        Raises:
            ValueError: it means none.
        """
        field = self._text_field()
        if field == "content" and "tool_calls" in self._properties:
            calls = [call.model_dump() for call in message.tool_calls]
            return {
                "content": message.content,
                "tool_calls": calls,
                "malformed_calls": [call.model_dump() for call in message.malformed_calls],
            }
        if field is not None:
            return {field: message.content}
        try:
            action = json.loads(_without_fence(message.content))
        except (ValueError, RecursionError) as error:
            raise ValueError("That is no JSON.") from error
        if not isinstance(action, dict):
            raise ValueError("That is no JSON object.")
        return action

    def _how_to_act(self) -> str:
        schema = {"type": "object", "properties": self._properties} | {
            key: self._schema[key] for key in ("required", "$defs") if key in self._schema
        }
        return f"Answer with one action, a JSON object of this schema: {json.dumps(schema)}"

    def _messages(self, observation: Any) -> Observation:
        if not isinstance(observation, dict):
            return [user(observation if isinstance(observation, str) else json.dumps(observation))]
        if isinstance(observation.get("messages"), list) and self._observation_field is None:
            told = _chat(observation["messages"])
            if told is not None:
                return told
        shown = {key: value for key, value in observation.items() if key not in _BESIDE}
        if self._observation_field is not None:
            shown = {self._observation_field: shown.get(self._observation_field)}
        texts = [value for value in shown.values() if isinstance(value, str)]
        if len(texts) == 1 == len(shown):
            return [user(texts[0])]
        return [user(json.dumps(shown, ensure_ascii=False))]


async def _action_schema(http: aiohttp.ClientSession, base: str) -> dict[str, Any]:
    """From the server's `/schema`; empty if it has none."""
    async with http.get(f"{base}/schema") as response:
        if response.status != 200:
            return {}
        schema = (await response.json()).get("action")
        return schema if isinstance(schema, dict) else {}


def _http_url(url: str) -> str:
    parts = urlsplit(url)
    scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    if scheme not in ("http", "https") or not parts.netloc:
        raise ConfigError(
            f"url must be the address of an OpenEnv server, such as http://localhost:8000, "
            f"got {url!r}"
        )
    return parts._replace(scheme=scheme).geturl().rstrip("/").removesuffix("/ws")


def _as_reward(value: Any) -> float | None:
    """A number, or `None`: unscored."""
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    return None


def _chat(entries: list[Any]) -> Observation | None:
    """Messages of a server that speaks the chat format; `None` if it does not."""
    try:
        return [
            Message.model_validate({k: v for k, v in entry.items() if k in _CHAT_FIELDS})
            for entry in entries
        ]
    except (AttributeError, ValidationError):
        return None


_CHAT_FIELDS = {"role", "content", "tool_call_id", "name"}


def _tools(observation: Any) -> tuple[Tool, ...]:
    """Tools the server offers with its first observation; it runs the calls itself."""
    offered = observation.get("tools", []) if isinstance(observation, dict) else []
    functions = [tool.get("function") for tool in offered if isinstance(tool, dict)]
    return tuple(
        foreign_tool(
            str(function["name"]),
            _run_by_the_server,
            description=str(function.get("description") or ""),
            parameters=function.get("parameters") or {"type": "object", "properties": {}},
        )
        for function in functions
        if isinstance(function, dict) and "name" in function
    )


async def _run_by_the_server(_: dict[str, Any]) -> str:
    raise EnvError("tools of an OpenEnv server are run by its step")


def _without_fence(text: str) -> str:
    lines = text.strip().splitlines()
    if len(lines) > 1 and lines[0].startswith("```") and lines[-1].strip() == "```":
        return "\n".join(lines[1:-1])
    return text
