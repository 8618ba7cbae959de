"""Sandboxes on E2B's service: a virtual machine for each trajectory."""

from agentgym.tools.sandbox.e2b.provider import E2BProvider

__all__ = ["E2BProvider"]
