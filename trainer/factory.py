"""Which trainer class a run uses: a name in `agentgym.registry.TRAINERS`."""

from agentgym.errors import ConfigError
from agentgym.registry import TRAINERS

TRAINERS.register("grpo", "agentgym.trainer.grpo:AgentGRPOTrainer")


def trainer_class(name: str) -> type:
    """The trainer of this name, imported now.

    Raises:
        NotRegisteredError: there is none.
        ConfigError: what is registered is no class.
    """
    found = TRAINERS.get(name)
    if not isinstance(found, type):
        raise ConfigError(f"trainer {name!r} is {found!r}, which is no class")
    return found
