"""Requests and answers of E2B's service, as its SDK sends and expects them."""

from datetime import UTC, datetime
from typing import Any

from aiohttp import web

TEMPLATE = "code-interpreter-v1"


def kind(request: web.Request) -> str:
    parts = [part for part in request.path.split("/") if part]
    if parts == ["v2", "sandboxes"]:
        return "create" if request.method == "POST" else "list"
    if parts[:1] == ["sandboxes"]:
        return "kill" if request.method == "DELETE" else parts[-1]
    return parts[0] if parts else ""


def key_of(request: web.Request) -> str:
    return request.headers.get("X-API-Key", "")


def dropped(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def gone(id: str) -> web.Response:
    body = {"sandboxId": id, "message": f"The sandbox {id} was not found", "code": 502}
    return web.json_response(body, status=502)


def created(id: str) -> web.Response:
    body = {
        "sandboxID": id,
        "templateID": TEMPLATE,
        "clientID": "stand-in",
        "envdVersion": "0.2.0",
        "envdAccessToken": "token",
        "domain": None,
        "trafficAccessToken": None,
    }
    return web.json_response(body, status=201)


def listed(machine: Any) -> dict[str, Any]:
    return {
        "sandboxID": machine.id,
        "templateID": TEMPLATE,
        "clientID": "stand-in",
        "startedAt": datetime.now(UTC).isoformat(),
        "endAt": machine.ends.isoformat(),
        "cpuCount": 2,
        "memoryMB": 512,
        "diskSizeMB": 1024,
        "state": "running",
        "envdVersion": "0.2.0",
        "metadata": machine.metadata,
    }
