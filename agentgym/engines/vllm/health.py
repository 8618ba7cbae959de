"""What a server is, and whether it is there."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from agentgym.engines.http import FailedCallError, JsonClient, UnreachableError, reading
from agentgym.engines.vllm.settings import Deadlines
from agentgym.errors import EngineError, WrongServerError

T = TypeVar("T")

_PER_CALL_S = 30.0
_BETWEEN_S = 0.25
_LAST_S = 1.0
"""For an answer, when time is up already: a server that is there and busy has it."""
_BROKEN = 500
HOW_TO_START = "start it with `agentgym serve`"


class OtherKeyError(WrongServerError):
    """The server wants an API key, and not the one that was sent, if any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a server says about itself."""

    model: str
    """Its name for it."""
    max_model_len: int
    label: str
    """Of its weights."""
    dtype: str
    """What it computes in, as in `torch.bfloat16`, without the `torch.`."""
    backend: str | None
    """How it takes new ones."""
    num_workers: int


async def look(client: JsonClient, model: str | None, deadlines: Deadlines) -> Facts:
    """Wait for a server, and hold it against what an engine needs.

    Raises:
        OtherKeyError: it does not let us in.
        WrongServerError: it serves another model, or was started without what is needed.
        EngineError: it did not answer in time.
    """
    await until_alive(client, deadlines.connect_s)
    cards = await _told(client, "GET", "/v1/models")
    card = _card(client, cards, model)
    weights = await _told(client, "GET", "/weight_info")
    info = await _told(client, "GET", "/server_info?config_format=json")
    size = await _told(client, "GET", "/get_world_size")
    await _told(client, "POST", "/inference/v1/abort_requests", {"request_ids": []})
    with reading(client.url, [weights, size, info]):
        config = info["vllm_config"]
        _refuse_other_logprobs(client, config["model_config"]["logprobs_mode"])
        return Facts(
            model=card["id"],
            max_model_len=card["max_model_len"],
            label=weights["weight_version"],
            dtype=str(config["model_config"]["dtype"]).removeprefix("torch."),
            backend=(config["weight_transfer_config"] or {}).get("backend"),
            num_workers=size["world_size"],
        )


def refuse_other(client: JsonClient, before: Facts, now: Facts) -> None:
    """Raise a `WrongServerError` unless a server that was started anew can go on as before."""
    room = min(before.max_model_len, now.max_model_len)
    pairs = {
        "model": (before.model, now.model),
        "dtype": (before.dtype, now.dtype),
        "context": (before.max_model_len, room),
    }
    changes = [f"{name} {new} instead of {old}" for name, (old, new) in pairs.items() if new != old]
    if changes:
        raise WrongServerError(
            f"{client.url} was started anew with {', '.join(changes)}: start it as it was"
        )


async def until_alive(client: JsonClient, timeout_s: float, *, waited_s: float = 0.0) -> None:
    """Wait until the server is there and does not say that it is broken.

    Args:
        client: of the server.
        timeout_s: from now on.
        waited_s: how long it was waited for before, for the error alone.

    Raises:
        UnreachableError: it did not in time.
    """

    async def ask(limit_s: float) -> None:
        try:
            await client.call("GET", "/health", timeout_s=limit_s)
        except FailedCallError as error:
            if error.status >= _BROKEN:
                raise

    await _until(client, ask, timeout_s, waited_s=waited_s)


async def until_answering(client: JsonClient, timeout_s: float) -> str:
    """Wait until the server's engine core is at work, too; the label of the weights it has.

    Raises:
        UnreachableError: it was not in time.
        EngineError: it does not let us in.
    """

    async def ask(limit_s: float) -> str:
        await client.call("GET", "/health", timeout_s=limit_s)
        return await label_of(client, limit_s)

    return await _until(client, ask, timeout_s)


async def until_going(client: JsonClient, timeout_s: float) -> None:
    """Wait until the server samples: one that is given weights does not.

    Raises:
        WrongServerError: it did not in time.
        EngineError: it does not say.
    """
    ends = time.monotonic() + timeout_s
    while await _is_paused(client):
        if time.monotonic() + _BETWEEN_S > ends:
            raise WrongServerError(
                f"{client.url} has been paused for {timeout_s:g} s: a run gives it weights, or was "
                "killed while it did; start the server again, or resume that run"
            )
        await asyncio.sleep(_BETWEEN_S)


async def _until(
    client: JsonClient,
    ask: Callable[[float], Awaitable[T]],
    timeout_s: float,
    *,
    waited_s: float = 0.0,
) -> T:
    """What `ask` gives, once it does; asked at least once, with the seconds that it may take."""
    ends = time.monotonic() + timeout_s
    while True:
        left_s = max(ends - time.monotonic(), _LAST_S)
        try:
            return await ask(min(left_s, _PER_CALL_S))
        except UnreachableError as error:
            failure: EngineError = error
        except FailedCallError as error:
            if error.status < _BROKEN:
                raise
            failure = error
        if time.monotonic() + _BETWEEN_S > ends:
            raise UnreachableError(
                f"{client.url} was not there within {waited_s + timeout_s:g} s: {failure}"
            ) from failure
        await asyncio.sleep(_BETWEEN_S)


async def label_of(client: JsonClient, timeout_s: float) -> str:
    """Label of the weights that the server has now.

    Raises:
        EngineError: it does not say.
    """
    answer = await client.call("GET", "/weight_info", timeout_s=timeout_s)
    with reading(client.url, answer):
        return str(answer["weight_version"])


async def _is_paused(client: JsonClient) -> bool:
    answer = await _told(client, "GET", "/is_paused")
    with reading(client.url, answer):
        return bool(answer["is_paused"])


async def _told(client: JsonClient, method: str, path: str, body: Any = None) -> Any:
    """What the server answers, once it is up.

    Raises:
        OtherKeyError: it does not let us in.
        WrongServerError: it has no such endpoint.
        UnreachableError: it does not answer.
    """
    try:
        return await client.call(method, path, body, timeout_s=_PER_CALL_S)
    except UnreachableError as error:
        raise UnreachableError(f"{client.url}{path.split('?')[0]}: {error}") from error
    except FailedCallError as error:
        if error.status == 401:
            raise OtherKeyError(f"{client.url} wants another API key") from error
        if error.status in (403, 404):
            message = f"{client.url} has no {path.split('?')[0]}: {HOW_TO_START}"
            raise WrongServerError(message) from error
        raise


def _card(client: JsonClient, cards: Any, model: str | None) -> Any:
    with reading(client.url, cards):
        bases = [card for card in cards["data"] if card["parent"] is None]
        fitting = [card for card in bases if model in (None, card["id"], card["root"])]
    if not fitting:
        names = ", ".join(card["id"] for card in bases)
        raise WrongServerError(f"{client.url} serves {names}, not {model}")
    return fitting[0]


def _refuse_other_logprobs(client: JsonClient, mode: str) -> None:
    if mode != "processed_logprobs":
        raise WrongServerError(
            f"{client.url} gives {mode}, which are not those of the distribution sampled from: "
            f"{HOW_TO_START}, or with --logprobs-mode processed_logprobs"
        )
