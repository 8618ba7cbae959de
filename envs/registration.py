"""Names of envs, kept in Gymnasium's own registry under the namespace `agentgym`.

Gymnasium would silently replace an env registered twice and demands exact ids; here a clash is an
error, and `calculator` finds the newest `agentgym/Calculator-vN`.
"""

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from importlib.metadata import entry_points
from typing import Any, NamedTuple

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator, parse_env_id, registry

from agentgym.envs.base import Env
from agentgym.envs.wrappers import TurnLimit
from agentgym.errors import ConfigError, NotRegisteredError

NAMESPACE = "agentgym"
ENTRY_POINT_GROUP = "agentgym.envs"
_CAMEL_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_UNVERSIONED = -1


class Family(NamedTuple):
    """Envs of another library, played through one adapter."""

    entry_point: str
    """Path `module:Class` of the adapter; its first argument is the env's name there."""
    summary: str


FAMILIES: dict[str, Family] = {}
"""By what stands before the slash of `reasoning-gym/leg_counting`."""


def register_family(prefix: str, entry_point: str, summary: str) -> None:
    """Make every env of another library known as `prefix/NAME`, or as `prefix` alone.

    Nothing is imported or listed: the adapter itself refuses names it does not know. Gymnasium
    knows an env of a family once it has been asked for here.

    Raises:
        ConfigError: something else has this prefix.
    """
    family = Family(entry_point, summary)
    if FAMILIES.setdefault(prefix, family) != family:
        raise ConfigError(f"envs under {prefix!r} are already played by {FAMILIES[prefix][0]!r}")


def register(
    id: str,
    entry_point: str | Callable[..., gymnasium.Env[Any, Any]],
    *,
    max_turns: int | None = None,
    nondeterministic: bool = False,
    kwargs: dict[str, Any] | None = None,
) -> None:
    """Register an env class, or the path `module:Class` of one.

    Args:
        id: `Name-vN`; put into the namespace `agentgym` unless it names another.
        entry_point: what builds the env.
        max_turns: turns after which an episode is truncated.
        nondeterministic: whether the same seed and actions may lead elsewhere.
        kwargs: arguments of every env that is built.

    Raises:
        ConfigError: something else has this id, or it is malformed.
    """
    full_id = id if "/" in id else f"{NAMESPACE}/{id}"
    try:
        spec = EnvSpec(
            full_id,
            entry_point,
            max_episode_steps=max_turns,
            nondeterministic=nondeterministic,
            kwargs=kwargs or {},
        )
    except gymnasium.error.Error as error:
        raise ConfigError(f"env id {id!r} is malformed: use Name-v0") from error
    taken = registry.setdefault(full_id, spec)
    if taken != spec:
        raise ConfigError(
            f"env {full_id!r} is already registered as {taken.entry_point!r}; "
            f"choose another name or version for {entry_point!r}"
        )


def make(name: str, **kwargs: Any) -> Env:
    """Build an env for the loop: without Gymnasium's wrappers, which know no async side.

    Args:
        name: `calculator`, `Calculator-v0`, `agentgym/Calculator-v0` or `Other/Thing-v1`.
        kwargs: of the env.

    Raises:
        NotRegisteredError: there is no such env.
        ConfigError: it is no agentgym env, or it cannot be built from these arguments.
    """
    found = spec(name)
    bare = dataclasses.replace(found, order_enforce=False, disable_env_checker=True)
    try:
        env = gymnasium.make(bare, max_episode_steps=-1, **kwargs)
    except (TypeError, ModuleNotFoundError, AttributeError) as error:
        _refuse_unknown_arguments(found, kwargs)
        raise ConfigError(f"env {found.id!r} cannot be built: {error}") from error
    if not isinstance(env, Env):
        raise ConfigError(f"env {found.id!r} is no agentgym Env: its observations are no messages")
    return env if found.max_episode_steps is None else TurnLimit(env, found.max_episode_steps)


def _refuse_unknown_arguments(found: EnvSpec, given: Mapping[str, Any]) -> None:
    """Name an argument that the env does not take, and a near one; silent if that is not it."""
    known = _arguments_of(found)
    unknown = [] if known is None else sorted(given.keys() - known)
    if known is not None and unknown:
        close = get_close_matches(unknown[0], known, n=1, cutoff=0.5)
        hint = f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(known) or 'none'}."
        raise ConfigError(f"env {found.id!r} takes no argument {unknown[0]!r}. {hint}")


def _arguments_of(found: EnvSpec) -> list[str] | None:
    """Names of what the env can be given; `None` if that cannot be known, or it takes any."""
    point = found.entry_point
    with suppress(ImportError, AttributeError, TypeError, ValueError, gymnasium.error.Error):
        creator = load_env_creator(point) if isinstance(point, str) else point
        parameters = inspect.signature(creator).parameters if creator is not None else {}
        takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        return None if takes_any else list(parameters)
    return None


def spec(name: str) -> EnvSpec:
    """What is registered under a name (see `make`), the newest version unless it names one.

    Raises:
        NotRegisteredError: nothing is; suggests a near name.
    """
    found = _find(name) or _of_family(name)
    if found is None:
        _register_entry_points()
        found = _find(name)
    if found is None:
        raise NotRegisteredError("environment", name, names())
    return found


def names() -> list[str]:
    """Bare names of the envs in the namespace `agentgym`, sorted; imports none of them."""
    _register_entry_points()
    return sorted({_bare(spec.name) for spec in registry.values() if spec.namespace == NAMESPACE})


def _find(name: str) -> EnvSpec | None:
    if name in registry:
        return registry[name]
    try:
        namespace, short, version = parse_env_id(name)
    except gymnasium.error.Error:
        return None
    candidates = [
        spec
        for spec in registry.values()
        if spec.namespace == (namespace or NAMESPACE)
        and _bare(spec.name) == _bare(short)
        and version in (None, spec.version)
    ]
    return max(candidates, key=_version, default=None)


def _of_family(name: str) -> EnvSpec | None:
    prefix, _, inner = name.partition("/")
    if prefix not in FAMILIES:
        return None
    try:
        spec = EnvSpec(name, FAMILIES[prefix].entry_point, kwargs={"name": inner} if inner else {})
    except gymnasium.error.Error:
        return None
    return registry.setdefault(name, spec)


def _version(spec: EnvSpec) -> int:
    return _UNVERSIONED if spec.version is None else spec.version


def _bare(name: str) -> str:
    """`TwentyQuestions`, `twenty-questions` and `twenty_questions` are one name."""
    return _CAMEL_CASE.sub("_", name).replace("-", "_").lower()


def _register_entry_points() -> None:
    """Envs that other distributions offer as `Name-vN = module:Class`; their code stays unread."""
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        versioned = entry.name if re.search(r"-v\d+$", entry.name) else f"{entry.name}-v0"
        register(versioned, entry.value)
