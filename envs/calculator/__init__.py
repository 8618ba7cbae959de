"""Arithmetic in several turns with a calculator."""

from agentgym.envs.calculator.env import CalculatorEnv
from agentgym.envs.calculator.oracle import oracle

__all__ = ["CalculatorEnv", "oracle"]
