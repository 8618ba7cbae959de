"""Grading of programs by tests that they cannot see."""

from agentgym.envs.code.grading.extract import extract_program
from agentgym.envs.code.grading.grader import Graded, TestResult, grade
from agentgym.envs.code.grading.tests import AssertTest, CallTest, StdioTest, read_tests
from agentgym.envs.code.grading.workspace import grade_workspace

__all__ = [
    "AssertTest",
    "CallTest",
    "Graded",
    "StdioTest",
    "TestResult",
    "extract_program",
    "grade",
    "grade_workspace",
    "read_tests",
]
