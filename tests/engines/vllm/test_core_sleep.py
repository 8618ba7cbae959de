"""What of vLLM's memory sleeps, without vLLM and without a GPU."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

from agentgym.engines.vllm.core import VllmCore
from agentgym.engines.vllm.local_adapters import Adapter


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
