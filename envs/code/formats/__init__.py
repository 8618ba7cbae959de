"""Data sets of code problems in the common formats."""

from agentgym.envs.code.formats.problem import CodeProblem, assembled
from agentgym.envs.code.formats.reading import FORMATS, problem_of, problems_of, read_file

__all__ = ["FORMATS", "CodeProblem", "assembled", "problem_of", "problems_of", "read_file"]
