"""Referees that do more than play the env: hints after wrong answers, ReAct. By name in the
registry of schedulers, so `--scheduler math_tips` finds them."""

from agentgym.rollout.schedulers.math_tips import MathTipsScheduler
from agentgym.rollout.schedulers.react import ReActScheduler
from agentgym.rollout.schedulers.thinking_tips import ThinkingTipsScheduler

__all__ = ["MathTipsScheduler", "ReActScheduler", "ThinkingTipsScheduler"]
