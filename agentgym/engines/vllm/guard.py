"""Who may talk to a server: vLLM's own key guards `/v1`, but not the endpoints that change it.

Loaded by vLLM through `--middleware`. With a key everything but `/health` needs it. Without one the
server listens on loopback only, and what a web page makes a browser send is refused. `/health`
says which launch the server is of.
"""

import hmac
import os
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from agentgym.addresses import is_loopback

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

MARK_VARIABLE = "AGENTGYM_LAUNCH"
MARK_HEADER = "X-Agentgym-Launch"
_OPEN = "/health"


class Guard:
    """ASGI middleware; the key is in the environment variable `VLLM_API_KEY`."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._key = os.environ.get("VLLM_API_KEY", "").encode()
        self._mark = os.environ.get(MARK_VARIABLE, "").encode()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Hand the request on, or answer it with 401."""
        if scope["type"] not in ("http", "websocket") or self._may_pass(scope):
            is_health = scope["type"] == "http" and scope["path"] == _OPEN
            await self._app(scope, receive, self._marking(send) if is_health else send)
            return
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"error": "Unauthorized"}'})

    def _marking(self, send: Send) -> Send:
        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = (MARK_HEADER.lower().encode(), self._mark)
                message = {**message, "headers": [*message.get("headers", ()), own]}
            await send(message)

        return marked

    def _may_pass(self, scope: Message) -> bool:
        headers = dict(_lower(scope["headers"]))
        if not self._key:
            host = headers.get(b"host", b"").decode("latin-1")
            return b"origin" not in headers and is_loopback(_name(host))
        if scope["path"] == _OPEN and scope.get("method") == "GET":
            return True
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token, self._key)


def _lower(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [(name.lower(), value) for name, value in headers]


def _name(host: str) -> str:
    """A `Host` header without the port, and without the brackets of an address."""
    return (host if host.endswith("]") else host.rpartition(":")[0] or host).strip("[]")
