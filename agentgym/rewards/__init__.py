"""What judges a trajectory beside its env: functions by name, weighed and merged."""

from agentgym.registry import REWARDS
from agentgym.rewards.rubric import Reward, Rubric, Score, merge

__all__ = ["Reward", "Rubric", "Score", "merge"]

for _name in ("finished", "tool_success", "brevity"):
    REWARDS.register(_name, f"agentgym.rewards.functions:{_name}")
for _name in ("format", "code_format", "react_format", "soft_overlong", "cosine", "repetition"):
    REWARDS.register(_name, f"agentgym.rewards.formats:{_name}")
REWARDS.register("code", "agentgym.rewards.code:code")
