"""Broken envs, there only while a module that asks for them is tested."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from gymnasium.envs.registration import registry

from agentgym.plugins import load_plugins, module_name

BROKEN_ENVS = Path(__file__).parents[1] / "broken_envs.py"


@pytest.fixture(scope="module")
def broken_envs() -> Iterator[ModuleType]:
    """The plugin, registered as `--plugins` would; the envs of others stay as they are."""
    load_plugins([BROKEN_ENVS])
    module = sys.modules[module_name(BROKEN_ENVS)]
    yield module
    for loaded in (module, *module._modules):
        del sys.modules[loaded.__name__]
    envs = set(module._envs())
    for name in [name for name, spec in registry.items() if spec.entry_point in envs]:
        del registry[name]
