"""What a look-up episode earns."""

from collections.abc import Sequence

from agentgym.envs.answers import read_answer
from agentgym.envs.lookup.codes import CODE, normalize
from agentgym.messages import ToolResult


def is_correct(answer: str | None, *, chain: Sequence[str]) -> bool:
    """Whether the one code given is the end of the chain."""
    code = read_answer(answer or "", CODE)
    return code is not None and normalize(code) == chain[-1]


def progress(results: Sequence[ToolResult], *, chain: Sequence[str]) -> float:
    """Share of the chain that look-ups have brought to light, from 0 to 1."""
    seen = {result.content for result in results}
    return sum(code in seen for code in chain[1:]) / (len(chain) - 1)
