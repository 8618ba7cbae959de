"""What the core asks of vLLM, and what becomes of turns, without vLLM and without a GPU."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from agentgym.engines.base import Generation, Sampling
from agentgym.engines.local import Ask
from agentgym.engines.vllm.core import Turn, VllmCore
from agentgym.engines.vllm.local_adapters import Adapter
from agentgym.engines.worker import Reply
from agentgym.errors import EngineError


@dataclass
class Sleeper:
    """Writes down what it is told."""

    told: list[str] = field(default_factory=list)

    def sleep(self, level: int) -> None:
        self.told.append(f"sleep {level}")

    def wake_up(self, tags: list[str]) -> None:
        self.told.append(f"wake {' '.join(tags)}")

    def add_lora(self, request: object) -> None:
        self.told.append("add")


def test_memory_that_an_update_has_taken_back_is_given_away_again(tmp_path: Path) -> None:
    """As when no turn follows the update, because every env failed."""
    vllm = Sleeper()
    core = VllmCore(vllm, can_sleep=True)
    core.sleep()
    core.sleep()
    core.adopt(Adapter(version=1, folder=tmp_path, request=SimpleNamespace()))
    core.sleep()

    assert vllm.told == ["sleep 1", "wake weights", "add", "wake kv_cache", "sleep 1"]


class Broken(Sleeper):
    """Takes no turn, and fails at those it has."""

    def step(self) -> None:
        raise RuntimeError("out of memory")

    def abort_request(self, keys: list[str]) -> None:
        self.told.append("abort")


async def test_a_turn_that_is_refused_as_a_step_fails_is_answered_too() -> None:
    """Whoever asked for it would wait for ever."""
    core = VllmCore(Broken(), can_sleep=False)
    reply: Reply[Generation] = Reply()
    sampling = Sampling(max_tokens=1, seed=0)
    ask = Ask(prompt_ids=(1,), sampling=sampling, session="s", limit=1, reply=reply)
    running, refused = (Turn(ask=ask, fields={}, reply=reply) for _ in range(2))
    core._running["1"] = running
    core.submit(refused)
    with pytest.raises(EngineError, match="vLLM failed"):
        core.step()

    assert core.abandon() == [running, refused]
    assert "vLLM refuses the turn" in str(refused.outcome)
