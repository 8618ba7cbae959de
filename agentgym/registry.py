"""Names for the things a run is put together from: the one table per kind.

An entry is an object or a lazy import path, so that listing names loads nothing and back ends with
extra dependencies cost only those who use them. Entry points of other distributions are looked up
only when a name is missing or all names are asked for.
"""

import importlib
import operator
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar, overload

from agentgym.errors import ConfigError, NotRegisteredError

T = TypeVar("T")


class Registry(Generic[T]):
    """Objects of one kind by name.

    Args:
        kind: what the objects are, in messages: "loss", "environment".
        entry_point_group: group in which other distributions offer more of them.
    """

    def __init__(self, kind: str, entry_point_group: str | None = None) -> None:
        self.kind = kind
        self.entry_point_group = entry_point_group
        self._entries: dict[str, T | str] = {}

    @overload
    def register(self, name: str) -> Callable[[T], T]: ...
    @overload
    def register(self, name: str, target: T | str) -> None: ...
    def register(self, name: str, target: T | str | None = None) -> Callable[[T], T] | None:
        """Add an object, or a path `module:attribute` to it; without a target, a decorator.

        Raises:
            ConfigError: something else is registered under this name.
        """
        if target is not None:
            self._add(name, target)
            return None

        def decorator(decorated: T) -> T:
            self._add(name, decorated)
            return decorated

        return decorator

    def get(self, name: str) -> T:
        """The object of this name, imported now if it is lazy.

        Raises:
            NotRegisteredError: there is none; suggests a near name.
            ConfigError: its module cannot be imported.
        """
        entry = self._entries.get(name)
        if entry is None:
            entry = self._entry_points().get(name)
        if entry is None:
            raise NotRegisteredError(self.kind, name, self.names())
        if isinstance(entry, str):
            entry = self._load(name, entry)
            self._entries[name] = entry
        return entry

    def make(self, name: str, **kwargs: Any) -> Any:
        """What the registered class or factory returns for these arguments."""
        factory: Any = self.get(name)
        return factory(**kwargs)

    def names(self) -> list[str]:
        """Every name that can be had, sorted; imports nothing."""
        return sorted({*self._entries, *self._entry_points()})

    def _add(self, name: str, target: T | str) -> None:
        taken = self._entries.setdefault(name, target)
        if taken is not target and taken != target:
            raise ConfigError(
                f"{self.kind} {name!r} is already registered as {taken!r}; "
                f"choose another name for {target!r}"
            )

    def _entry_points(self) -> dict[str, str]:
        if self.entry_point_group is None:
            return {}
        return {entry.name: entry.value for entry in entry_points(group=self.entry_point_group)}

    def _load(self, name: str, path: str) -> T:
        module, _, attribute = path.partition(":")
        try:
            loaded: T = operator.attrgetter(attribute)(importlib.import_module(module))
        except (ModuleNotFoundError, AttributeError) as error:
            raise ConfigError(
                f"{self.kind} {name!r} cannot be loaded from {path}: {error}"
            ) from error
        return loaded


TOOLS: Registry[Any] = Registry("tool", "agentgym.tools")
"""`agentgym.tools.Tool` by name."""
REWARDS: Registry[Any] = Registry("reward", "agentgym.rewards")
"""Reward functions."""
SCHEDULERS: Registry[Any] = Registry("scheduler", "agentgym.schedulers")
"""Classes derived from `agentgym.rollout.scheduler.Scheduler`."""
for _name, _class in {
    "math_tips": "math_tips:MathTipsScheduler",
    "react": "react:ReActScheduler",
    "thinking_tips": "thinking_tips:ThinkingTipsScheduler",
}.items():
    SCHEDULERS.register(_name, f"agentgym.rollout.schedulers.{_class}")
ADVANTAGES: Registry[Any] = Registry("advantage estimator", "agentgym.advantages")
"""Functions of rewards and group ids."""
LOSSES: Registry[Any] = Registry("loss", "agentgym.losses")
"""Functions of flat tokens."""
TRAINERS: Registry[Any] = Registry("trainer", "agentgym.trainers")
"""Trainer classes."""
