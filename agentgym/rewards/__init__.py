"""What judges a trajectory beside its env: functions by name, weighed and merged."""

from agentgym.rewards.rubric import Reward, Rubric, Score, merge

__all__ = ["Reward", "Rubric", "Score", "merge"]
