"""Envs that are broken in one way each, and one that is not; `agentgym check` must tell.

A plugin: importing it registers every class of `tests/broken/` as `NAME-v0`.
"""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from agentgym.envs import Env, register

FOLDER = Path(__file__).with_name("broken")
TOPICS = ("sound", "state", "rewards", "tasks", "leaks", "protocol")
"""The first is what the others import."""


def _load(topic: str) -> ModuleType:
    """A plugin is in no package, so each topic gets a name that nothing else has."""
    name = f"agentgym_broken_{topic}"
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{topic}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


_modules = [_load(topic) for topic in TOPICS]


def _envs() -> Iterator[type[Env]]:
    for module in _modules:
        for value in vars(module).values():
            is_env = isinstance(value, type) and issubclass(value, Env)
            if is_env and value.__module__ == module.__name__:
                yield value


for _env in _envs():
    register(f"{_env.__name__}-v0", _env)
