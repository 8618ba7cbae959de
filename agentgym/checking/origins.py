"""From a name or a class to what builds the env, in this process and in another one."""

import importlib
import inspect
import operator
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from agentgym.checking.subject import Origin, build_registered
from agentgym.envs import Env
from agentgym.errors import ConfigError
from agentgym.plugins import load_plugins, loaded, module_name


def origin_of(env: str | Callable[..., Env], env_args: dict[str, Any]) -> Origin | None:
    """How another process finds an env; `None` if it cannot."""
    if isinstance(env, str):
        return Origin(name=env, env_args=env_args, plugins=loaded())
    if not isinstance(env, type) or "<locals>" in env.__qualname__:
        return None
    file = inspect.getsourcefile(env)
    return Origin(
        module=env.__module__,
        qualname=env.__qualname__,
        file=None if file is None else Path(file),
        env_args=env_args,
        plugins=loaded(),
    )


def find(origin: Origin) -> Callable[[], Env]:
    """What builds the env, after importing the plugins.

    Raises:
        ConfigError: a plugin cannot be imported, or there is no such class.
    """
    load_plugins(origin.plugins)
    if origin.name is not None:
        return build_registered(origin.name, origin.env_args)
    try:
        env_class = operator.attrgetter(origin.qualname)(_module(origin))
    except AttributeError as error:
        raise ConfigError(f"{origin.module} has no class {origin.qualname!r}") from error
    return lambda: env_class(**origin.env_args)


def _module(origin: Origin) -> ModuleType:
    try:
        return importlib.import_module(origin.module)
    except ImportError:
        if origin.file is None:
            raise
        load_plugins([origin.file])
        return sys.modules[module_name(origin.file)]
