"""Which scheduler referees: the env's or a plugin's. Loads no torch: rollouts use it too."""

from typing import Any

from agentgym.errors import ConfigError
from agentgym.registry import SCHEDULERS
from agentgym.rendering.base import Renderer
from agentgym.rollout.game import Game
from agentgym.rollout.gym_scheduler import GymScheduler
from agentgym.rollout.scheduler import Scheduler


def scheduler_for(
    scheduler: Scheduler | str | type[Scheduler] | None, game: Game, renderer: Renderer
) -> Scheduler:
    """The referee that was handed in, or one of that name or class over the game's env.

    Raises:
        NotRegisteredError: no such scheduler.
    """
    if isinstance(scheduler, Scheduler):
        return scheduler
    factory: Any = SCHEDULERS.get(scheduler) if isinstance(scheduler, str) else scheduler
    if factory is None:
        factory = GymScheduler
    if not (isinstance(factory, type) and issubclass(factory, GymScheduler)):
        return _built(scheduler, factory())
    return _built(
        scheduler,
        factory(
            game.make_env,
            reward_weights=game.reward_weights,
            count_tokens=lambda text: len(renderer.encode(text)),
        ),
    )


def _built(asked: object, built: object) -> Scheduler:
    if not isinstance(built, Scheduler):
        raise ConfigError(f"scheduler {asked!r} made a {type(built).__name__}, no Scheduler")
    return built
