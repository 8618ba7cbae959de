"""Plugin files: Python that registers what it brings, named on the command line.

A file is imported under a module name of its own, so that two plugins may share a file name and
none can shadow an installed package.
"""

import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path

from agentgym.errors import AgentGymError, ConfigError, boundary

_PREFIX = "agentgym_plugin_"


def load_plugins(paths: Iterable[str | Path]) -> None:
    """Import each file, unless it was imported before.

    Raises:
        ConfigError: a file does not exist or cannot be imported; one line that names file and line.
    """
    for path in paths:
        _load(Path(path))


def _load(path: Path) -> None:
    name = module_name(path)
    if name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ConfigError(f"plugin {path}: there is no such Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with boundary(ConfigError, "plugin", also=(SystemExit,)):
            spec.loader.exec_module(module)
    except AgentGymError as error:
        del sys.modules[name]
        raise ConfigError(_explain(error, path)) from error


def loaded() -> tuple[Path, ...]:
    """Files of all plugins that were imported, in order."""
    files = (m.__file__ for name, m in list(sys.modules.items()) if name.startswith(_PREFIX))
    return tuple(Path(file) for file in files if file)


def module_name(path: Path) -> str:
    """Under which a plugin file is found in `sys.modules`."""
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]
    return f"{_PREFIX}{path.stem}_{digest}"


def _explain(error: AgentGymError, path: Path) -> str:
    cause = error.__cause__ or error
    origin = str(path.absolute())
    if isinstance(cause, SyntaxError) and cause.filename == origin:
        return f"plugin {path}:{cause.lineno}: SyntaxError: {cause.msg}"
    frames = [
        frame for frame in traceback.extract_tb(cause.__traceback__) if frame.filename == origin
    ]
    line = f":{frames[-1].lineno}" if frames else ""
    return f"plugin {path}{line}: {type(cause).__name__}: {' '.join(str(cause).split())}"
