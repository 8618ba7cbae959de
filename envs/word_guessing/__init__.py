"""Find a hidden word from marks on the letters of each guess."""

from agentgym.envs.word_guessing.env import WordGuessingEnv
from agentgym.envs.word_guessing.oracle import oracle

__all__ = ["WordGuessingEnv", "oracle"]
