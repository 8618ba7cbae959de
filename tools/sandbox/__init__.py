"""Places to run code that nobody has read: one per trajectory, with limits and a named level."""

from agentgym.tools.sandbox.base import (
    Call,
    Case,
    ExecResult,
    Expression,
    Level,
    Opaque,
    Outcome,
    Sandbox,
    SandboxProvider,
    SandboxSpec,
    Script,
)
from agentgym.tools.sandbox.limits import Limits

__all__ = [
    "Call",
    "Case",
    "ExecResult",
    "Expression",
    "Level",
    "Limits",
    "Opaque",
    "Outcome",
    "Sandbox",
    "SandboxProvider",
    "SandboxSpec",
    "Script",
]
