"""Which vLLM servers to use, and how long to wait for them."""

from dataclasses import dataclass, field
from pathlib import Path

from agentgym.engines.http import Patience
from agentgym.engines.vllm.ports import place_of
from agentgym.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """All in seconds."""

    connect_s: float = 120.0
    """For a server to be there at the beginning."""
    turn_s: float = 1800.0
    """For one turn, the queue included, weight updates not."""
    hung_s: float = 60.0
    """A server that says nothing for so long is not waited for: longer than a step of the model."""
    gone_s: float = 60.0
    """For a server that was there to come back, or for another one to take over."""
    update_s: float = 600.0
    """For all servers to have new weights."""
    resume_s: float = 20.0
    """For one to go on after that, whatever happened."""

    @property
    def longest_s(self) -> float:
        """For whoever waits for a turn from outside: by then it has ended on its own.

        It is asked for again for `turn_s`, and the last attempt has as long, an update and an
        outage aside.
        """
        return 2 * (self.turn_s + self.hung_s) + self.update_s + self.gone_s

    def __post_init__(self) -> None:
        """Refuse deadlines that never come, or are over at once.

        Raises:
            ConfigError: a value is out of range.
        """
        values = [getattr(self, name) for name in self.__slots__]
        if not all(0 < value < float("inf") for value in values):
            raise ConfigError(f"{self}: each must be more than 0 s and finite")


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmServers:
    """Servers of the same model, as `agentgym serve` starts them."""

    urls: tuple[str, ...]
    """Without `/v1`."""
    model: str | None = None
    """Name or folder that each must serve; by default whatever it serves."""
    key_variable: str = "VLLM_API_KEY"
    """Environment variable that holds the servers' key; without one no key is sent."""
    deadlines: Deadlines = field(default_factory=Deadlines)
    concurrency: int = 1024
    """Requests at once to each server."""
    adapter_folder: Path | None = None
    """Where LoRA adapters are written for the servers to read; by default a temporary folder."""
    host: str | None = None
    """Address of this machine for the servers, for weights that come over a network; `None` = that
    of its route to them."""

    def __post_init__(self) -> None:
        """Refuse what cannot be asked.

        Raises:
            ConfigError: no server, or one twice.
        """
        if not self.urls or len({place_of(url) for url in self.urls}) != len(self.urls):
            given = ", ".join(self.urls) or "no server"
            raise ConfigError(f"{given}: need one or more servers, each once")
        if self.concurrency < 1:
            raise ConfigError(f"concurrency={self.concurrency}: need at least 1")

    @property
    def patience(self) -> Patience:
        """Of a request: retries are the router's."""
        limit_s = self.deadlines.turn_s + self.deadlines.update_s
        return Patience(timeout_s=limit_s, max_retries=0, concurrency=self.concurrency)
