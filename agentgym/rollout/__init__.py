"""The agent loop: requests in, exact trajectories out, the same for every use."""

from agentgym.rollout.collect import TooManyFailuresError, collect
from agentgym.rollout.gym_scheduler import GymScheduler
from agentgym.rollout.play import run_trajectory
from agentgym.rollout.player import Player, SamplingDefaults
from agentgym.rollout.scheduler import NextTurn, Playing, Scheduler, TurnResult
from agentgym.rollout.state import Trajectory

__all__ = [
    "GymScheduler",
    "NextTurn",
    "Player",
    "Playing",
    "SamplingDefaults",
    "Scheduler",
    "TooManyFailuresError",
    "Trajectory",
    "TurnResult",
    "collect",
    "run_trajectory",
]
