"""Mathematical answers as a reward: the grader of the `maths` env for any other use."""

from agentgym.envs.maths.grading import answer_of, grade

__all__ = ["answer_of", "grade"]
