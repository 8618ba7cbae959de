"""What is sent to the service's interpreter: the bridge, and the runner's code for it to start.

As text, since that interpreter may be of another version than this one. The bridge, of a few
kilobytes, goes along with every question, so that an interpreter that was started anew can say so;
the runner goes along with the first.
"""

import base64
import importlib.resources
import json
import marshal
import uuid
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from agentgym.tools.sandbox.base import SandboxSpec
from agentgym.tools.sandbox.host.program_code import runner_code
from agentgym.tools.sandbox.host.requests import limits_of
from agentgym.tools.sandbox.inside import boot

_PACKAGE = "agentgym.tools.sandbox.inside"
_CONTROL = 198
"""Descriptor of the runner's socket over there; any that is free."""
_SIZE = 8
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_CELL = """\
import sys
if {name!r} not in sys.modules:
    import base64, zlib
    module = type(sys)({name!r})
    exec(zlib.decompress(base64.b64decode({bridge!r})), module.__dict__)
    sys.modules[{name!r}] = module
sys.modules[{name!r}].call({question!r}, {marker!r})
"""


def cell(question: Mapping[str, Any], marker: str) -> str:
    """Python that has the bridge answer a question between two markers."""
    text = _packed(json.dumps(question).encode())
    return _CELL.format(name="_agentgym", bridge=_bridge(), question=text, marker=marker)


def question(
    token: str,
    spec: SandboxSpec,
    requests: Sequence[Mapping[str, Any]],
    *,
    seconds: float,
    beat_s: float,
) -> dict[str, Any]:
    """A call. It has an id: asked again, it is not run again.

    Args:
        token: of the bridge that must answer; any one, which starts a runner, if empty.
        spec: what the sandbox was opened with.
        requests: in the words of `requests`.
        seconds: longest wait for each answer.
        beat_s: how often a sign of life is sent meanwhile.
    """
    asked = [
        {"request": dict(request), "answered": request["op"] != "program", "seconds": seconds}
        for request in requests
    ]
    start = {} if token else {**_start(), "config": _config(spec)}
    known = {"id": uuid.uuid4().hex, "token": token, "beat_s": beat_s}
    return {**known, "questions": asked, "start": start}


def _config(spec: SandboxSpec) -> dict[str, Any]:
    """`RunnerConfig` without the folders, which are made over there."""
    env = {"LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    return {
        "preload": list(spec.preload),
        "env": env | dict.fromkeys(_THREADS, "1"),
        "owns_pids": False,
        "owns_uid": False,
        "watch_disk": True,
        "hide": [],
        "confine": None,
        "limits": limits_of(spec.limits),
    }


@cache
def _start() -> dict[str, Any]:
    names = [name for name, _ in marshal.loads(runner_code()[_SIZE:])]
    folder = importlib.resources.files(_PACKAGE)
    modules = [[name, _source(folder, name)] for name in names]
    command = boot.command("{python}", _CONTROL, cache_tag="{tag}")
    return {"control": _CONTROL, "command": command, "modules": modules}


def _source(folder: Any, name: str) -> str | None:
    """The text of a module; `None` for the packages around it."""
    if not name.startswith(f"{_PACKAGE}."):
        return None
    text: str = (folder / f"{name.rpartition('.')[2]}.py").read_text("utf-8")
    return text


@cache
def _bridge() -> str:
    package = __package__ or ""
    return _packed((importlib.resources.files(package) / "bridge.py").read_bytes())


def _packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 9)).decode()
