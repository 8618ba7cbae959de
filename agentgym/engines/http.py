"""JSON over HTTP to a server that may be busy, broken or gone.

Every attempt has a deadline and there are only so many, so whoever waits for an answer gets one or
an error. Busy (429), slow (408), broken (5xx) and unreachable servers are asked again, after the
time they name or after a growing, random one, so that many trajectories do not come back at the
same moment.
"""

import asyncio
import json
import logging
import math
import random
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from agentgym.errors import ConfigError, EngineError, WrongServerError

_log = logging.getLogger(__name__)
_FIRST_WAIT_S = 0.2
_LONGEST_WAIT_S = 60.0
_LONG_WAIT_S = 5.0
"""A pause of which a line says that nothing is broken."""
_CALLERS_FAULT = {401, 403, 404}
_BUSY = {408, 425, 429}
_OVERLOADED = 503
_MAX_SHOWN = 200
_NO_JSON = (ValueError, RecursionError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to wait for a server, and how often to ask."""

    timeout_s: float = 300.0
    """Of one attempt."""
    max_retries: int = 5
    """Attempts after the first."""
    concurrency: int = 64
    """Requests at once; a request that waits to be tried again counts."""
    requests_per_minute: float | None = None
    """Attempts that begin in a minute, evenly spread; `None` = as they come."""

    def __post_init__(self) -> None:
        """Refuse what would never ask, or never stop.

        Raises:
            ConfigError: a value is out of range.
        """
        if not (0 < self.timeout_s < float("inf") and self.max_retries >= 0 < self.concurrency):
            raise ConfigError(f"{self}: need timeout_s > 0, max_retries >= 0 and concurrency >= 1")
        rate = self.requests_per_minute
        if rate is not None and not 0 < rate < float("inf"):
            raise ConfigError(f"requests_per_minute={rate}: need more than 0")

    @property
    def between_s(self) -> float:
        """Seconds from the begin of one attempt to the next."""
        return 60.0 / self.requests_per_minute if self.requests_per_minute else 0.0


def longest_call_s(patience: Patience, num_calls: int) -> float:
    """Seconds until the last of so many posts, all at once, has its answer or its error."""
    tries, rounds = patience.max_retries + 1, math.ceil(num_calls / patience.concurrency)
    return tries * (
        rounds * (patience.timeout_s + _LONGEST_WAIT_S) + num_calls * patience.between_s
    )


class _Pace:
    """Lets attempts begin one after the other."""

    def __init__(self, between_s: float) -> None:
        self._between_s = between_s
        self._next = 0.0

    async def turn(self) -> None:
        """Wait for the next free moment."""
        if not self._between_s:
            return
        now = time.monotonic()
        at = max(now, self._next)
        self._next = at + self._between_s
        await asyncio.sleep(at - now)


class AskAgainError(EngineError):
    """This attempt failed; the next may not."""

    def __init__(self, reason: str, *, wait_s: float | None = None, is_busy: bool = False) -> None:
        super().__init__(reason)
        self.wait_s = wait_s
        """What the server asked for."""
        self.is_busy = is_busy
        """The server is well, and says that it has too much to do."""


class UnreachableError(AskAgainError):
    """No answer of the server's own: no connection, one that was cut, silence, or somebody else."""


@contextmanager
def reading(url: str, answer: Any) -> Iterator[None]:
    """Take an answer apart in the block.

    Raises:
        UnreachableError: it holds something else, as when a proxy answers for the server.
    """
    try:
        yield
    except (LookupError, TypeError, AttributeError):
        message = f"{url} answered with what is not the server's: {_short(str(answer))}"
        raise UnreachableError(message) from None


class RefusedError(WrongServerError):
    """The server knows neither the key, nor the path, nor what was asked for."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class FailedCallError(EngineError):
    """The server answered a call with an error."""

    def __init__(self, message: str, *, status: int, text: str) -> None:
        super().__init__(message)
        self.status = status
        self.text = text
        """All that it said."""

    @property
    def said(self) -> str:
        """The same in one line, without the JSON around it."""
        return _short(self.message)

    @property
    def message(self) -> str:
        """All of it, without the JSON around it."""
        try:
            error = json.loads(self.text)["error"]
        except (*_NO_JSON, KeyError, TypeError):
            return self.text
        return str(error.get("message", self.text) if isinstance(error, dict) else error)


@dataclass(slots=True)
class _Link:
    """What belongs to one event loop."""

    loop: asyncio.AbstractEventLoop
    session: aiohttp.ClientSession
    calls: aiohttp.ClientSession
    """Each with a connection of its own: none is used again that the server is about to close."""
    slots: asyncio.Semaphore
    life: AsyncGenerator[None, None] = field(init=False)
    """Begun on the loop; a loop that ends ends its generators, and nobody else can close what was
    opened on it."""

    def __post_init__(self) -> None:
        self.life = self._lasting()

    async def close(self) -> None:
        """Close the connections; idempotent."""
        await self.session.close()
        await self.calls.close()

    async def _lasting(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            await self.close()


class JsonClient:
    """Posts JSON to one server; may be used from several event loops, one after the other.

    Args:
        url: what every path is appended to.
        token: for the `Authorization` header.
        patience: deadlines and retries.

    Raises:
        ConfigError: no URL, or a key that no header can hold.
    """

    def __init__(self, url: str, *, token: str | None, patience: Patience) -> None:
        _refuse_no_url(url)
        if token and not token.isprintable():
            raise ConfigError(f"the key for {url} holds a line break or a control character")
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._patience = patience
        self._pace = _Pace(patience.between_s)
        self._link: _Link | None = None
        self._left: list[_Link] = []
        self._is_silent = False

    @property
    def url(self) -> str:
        """What every path is appended to."""
        return self._url

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The answer, parsed.

        Raises:
            ConfigError: the server does not know us, the path or the model.
            EngineError: no usable answer came, however often it was asked.
        """
        link = await self._linked()
        async with link.slots:
            for attempt in range(self._patience.max_retries + 1):
                try:
                    answer = await self._attempt(link.session, path, body)
                except AskAgainError as error:
                    failure, wait_s = error, error.wait_s
                    self._tell_of(error)
                else:
                    self._is_silent = False
                    return answer
                if attempt < self._patience.max_retries:
                    await asyncio.sleep(pause_s(attempt) if wait_s is None else wait_s)
        tries = self._patience.max_retries + 1
        raise EngineError(f"{self._url}: {failure}; gave up after {tries} attempts")

    def _tell_of(self, error: AskAgainError) -> None:
        """Once, until it answers: many may ask it at the same time."""
        is_long = (error.wait_s or 0.0) >= _LONG_WAIT_S
        if not self._is_silent and (is_long or isinstance(error, UnreachableError)):
            self._is_silent = True
            retries, pause = self._patience.max_retries, ""
            if is_long:
                pause = f", {error.wait_s:.0f} s from one to the next"
            _log.warning("%s: %s; up to %d more attempts%s", self._url, error, retries, pause)

    async def post_once(self, path: str, body: Mapping[str, Any]) -> Any:
        """The answer to one attempt; its deadline is `timeout_s`.

        Raises:
            AskAgainError: there is none, or the server is busy or broken.
            RefusedError: the server does not know us, the path or the model.
            EngineError: the answer is of no use.
        """
        link = await self._linked()
        async with link.slots:
            return await self._attempt(link.session, path, body)

    async def call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, timeout_s: float
    ) -> Any:
        """One attempt beside the requests, which is not counted among them.

        Returns:
            What was answered: parsed if it is JSON, else as text.

        Raises:
            UnreachableError: no answer came in time.
            FailedCallError: the answer was an error.
        """
        url, timeout = f"{self._url}{path}", aiohttp.ClientTimeout(total=timeout_s)
        link = await self._linked()
        request = link.calls.request(method, url, json=body, timeout=timeout)
        with _transport(timeout_s):
            async with request as response:
                text = await response.text(errors="replace")
        if response.status != 200:
            message = f"{url} answered with status {response.status}: {_short(text)}"
            raise FailedCallError(message, status=response.status, text=text)
        try:
            return json.loads(text)
        except _NO_JSON:
            return text

    async def aclose(self) -> None:
        """Close the connections; a later call opens new ones."""
        links = [*self._left, *([self._link] if self._link else [])]
        self._link, self._left = None, []
        for link in links:
            if link.loop is asyncio.get_running_loop() or link.loop.is_closed():
                await link.close()

    async def _linked(self) -> _Link:
        loop = asyncio.get_running_loop()
        if self._link is None or self._link.loop is not loop:
            known = self._left if self._link is None else [*self._left, self._link]
            self._left = [link for link in known if not link.session.closed]
            requests = self._open(aiohttp.TCPConnector(limit=0))
            calls = self._open(aiohttp.TCPConnector(limit=0, force_close=True))
            slots = asyncio.Semaphore(self._patience.concurrency)
            self._link = _Link(loop, requests, calls, slots)
            await anext(self._link.life)
        return self._link

    def _open(self, connector: aiohttp.BaseConnector) -> aiohttp.ClientSession:
        timeout = aiohttp.ClientTimeout(total=self._patience.timeout_s)
        return aiohttp.ClientSession(headers=self._headers, timeout=timeout, connector=connector)

    async def _attempt(
        self, session: aiohttp.ClientSession, path: str, body: Mapping[str, Any]
    ) -> Any:
        url = f"{self._url}{path}"
        await self._pace.turn()
        with _transport(self._patience.timeout_s):
            async with session.post(url, json=body) as response:
                text = await response.text(errors="replace")
        _refuse(response, text)
        try:
            return json.loads(text)
        except _NO_JSON as error:
            raise EngineError(f"{url} answered with what is no JSON: {_short(text)}") from error


def _refuse_no_url(url: str) -> None:
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"the endpoint {url!r} must begin with http:// or https://")
    try:
        parts = urlsplit(url)
        names_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        names_host = False
    if not names_host:
        raise ConfigError(f"the endpoint {url!r} names no host, or no port that there is")


@contextmanager
def _transport(timeout_s: float) -> Iterator[None]:
    """Say in one way that no answer came."""
    try:
        yield
    except TimeoutError as error:
        raise UnreachableError(f"no answer within {round(timeout_s, 3):g} s") from error
    except (aiohttp.ClientError, OSError) as error:
        raise UnreachableError(f"{type(error).__name__}: {_short(str(error))}") from error


def _refuse(response: aiohttp.ClientResponse, text: str) -> None:
    """Raise unless the answer is one."""
    status, reason = response.status, f"status {response.status}: {_short(text)}"
    if status in _BUSY or status >= 500:
        wait_s = _named_wait(response.headers.get("Retry-After"))
        raise AskAgainError(reason, wait_s=wait_s, is_busy=status in {*_BUSY, _OVERLOADED})
    if status in _CALLERS_FAULT:
        message = f"{response.url} answered with {reason}; check URL, key and model name"
        raise RefusedError(message, status)
    if status != 200:
        message = f"{response.url} answered with {reason}"
        raise FailedCallError(message, status=status, text=text)


def _named_wait(header: str | None) -> float | None:
    """Seconds that a `Retry-After` header names, as a number or a date.

    `None` if it does not, or if they are over: then only a pause of our own eases the server.
    """
    seconds: float | None = None
    with suppress(ValueError):
        seconds = float(header or "")
    if seconds is None:
        with suppress(ValueError, TypeError, OverflowError):
            seconds = parsedate_to_datetime(header or "").timestamp() - time.time()
    return min(seconds, _LONGEST_WAIT_S) if seconds is not None and seconds > 0 else None


def pause_s(attempt: int) -> float:
    """Seconds before attempt number `attempt` + 1: exponential, half to all of it at random."""
    longest = min(_FIRST_WAIT_S * 2.0 ** min(attempt, 20), _LONGEST_WAIT_S)
    return longest * random.uniform(0.5, 1.0)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_SHOWN else line[: _MAX_SHOWN - 3] + "..."
