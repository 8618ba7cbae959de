"""`agentgym envs`: what can be played.

Each env is built, asked and closed in a thread that the list waits for only so long: one env that
waits for a server must not keep the others from being listed.
"""

import inspect
from threading import Thread

from pydantic import Field
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from agentgym.commands import Command
from agentgym.commands.sections import PluginSection
from agentgym.deadlines import abandon
from agentgym.envs import FAMILIES, make, names, spec
from agentgym.errors import AgentGymError, ConfigError, boundary


class EnvsConfig(PluginSection):
    """List the registered environments."""

    names: bool = False
    """Bare names, one per line."""
    timeout: float = Field(10, gt=0, allow_inf_nan=False)
    """Seconds in which an environment must be built and closed to be described."""


def envs(settings: EnvsConfig) -> None:
    """Print the environments."""
    settings.load_plugins()
    if settings.names:
        print("\n".join(names()))
        return
    table = Table.grid(padding=(0, 2))
    for name in names():
        table.add_row(
            Text(f"{name} v{spec(name).version}", "bold"), _describe(name, settings.timeout)
        )
    for prefix, family in FAMILIES.items():
        table.add_row(Text(f"{prefix}/...", "bold"), Text(family.summary))
    Console().print(table)


def _describe(name: str, timeout_s: float) -> Group:
    """What is told about an env; one that cannot be built says why, so that the list is whole."""
    told: list[Group] = []
    thread = Thread(target=lambda: told.append(_told(name)), name=f"describe-{name}", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if told:
        return told[0]
    abandon(thread)
    late = f"env {name!r} was not built and closed within {timeout_s:g} s; try a longer --timeout"
    return Group(Text(late, "red"))


def _told(name: str) -> Group:
    try:
        with boundary(ConfigError, f"env {name!r} cannot be built", also=(SystemExit,)):
            return _facts(name)
    except AgentGymError as error:
        return Group(Text(str(error), "red"))


def _facts(name: str) -> Group:
    env = make(name)
    env.close()
    env_class = type(env.unwrapped)
    rewards = [f"{reward} x{weight:g}" for reward, weight in env.reward_weights.items()]
    facts = {
        "rewards": rewards,
        "tools": [tool.name for tool in env.tools],
        "arguments": _arguments(env_class),
    }
    table = Table.grid(padding=(0, 2))
    for title, values in facts.items():
        table.add_row(Text(title, "dim"), Text(", ".join(values) or "-"))
    return Group(Text((inspect.getdoc(env_class) or "").split("\n")[0]), table)


def _arguments(env_class: type) -> list[str]:
    """What `--env-args` takes, with the defaults."""
    parameters = inspect.signature(env_class).parameters.values()
    return [p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters]


COMMAND = Command(EnvsConfig, envs)
