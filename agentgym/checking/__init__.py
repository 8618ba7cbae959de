"""Can an env, or a tool, be trusted? Checks that need no model."""

from agentgym.checking.api import check_env, check_tool
from agentgym.checking.report import CheckReport, CheckResult, Status

__all__ = ["CheckReport", "CheckResult", "Status", "check_env", "check_tool"]
