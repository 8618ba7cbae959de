"""Settings that say what samples from the policy: this process's own model, or vLLM."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from agentgym.config import Config, flag_of

if TYPE_CHECKING:
    from agentgym.engines.vllm.settings import Deadlines

EngineName = Literal["transformers", "vllm", "vllm-server"]
DEFAULT_URL = "http://127.0.0.1:8000"
KEY_VARIABLE = "VLLM_API_KEY"
"""What `agentgym serve` reads, too."""
OF_ENDPOINTS = (
    "an OpenAI-compatible endpoint gives text, not the sampled tokens and their log-probabilities: "
    "it plays in `agentgym rollout --policy openai:URL#MODEL`, and nothing is trained with it"
)
_OF_SERVERS = ("server_url", "server_model", "server_key_variable", "server_timeout")
_TURN_S = 300.0
"""Longest wait for a turn of an engine in this process, as the trainer has it."""
_EPISODE_S = 600.0
"""Longest trajectory with such turns, as the trainer has it."""
_IN_PROCESS = ("gpu_memory_utilization", "kv_cache_gb", "max_context")
_OWNERS = dict.fromkeys(_OF_SERVERS, "vllm-server") | dict.fromkeys(_IN_PROCESS, "vllm")
"""The engine of a setting that is for one alone."""


class EngineSection(Config):
    """What samples from the policy"""

    engine: EngineName | None = None
    """transformers samples from the model that is loaded here, vllm from vLLM in this process,
    vllm-server from `agentgym serve`. (default: transformers; with --server-url vllm-server)"""
    server_url: tuple[str, ...] = ()
    """Where `agentgym serve` runs, once or several times with the same model: chooses --engine
    vllm-server. (default: http://127.0.0.1:8000)"""
    server_model: str | None = Field(None, min_length=1)
    """The servers' name for the model, if it is not that of --model."""
    server_key_variable: str = Field(KEY_VARIABLE, min_length=1)
    """Environment variable that holds the servers' API key."""
    server_timeout: float = Field(60.0, gt=0, allow_inf_nan=False)
    """Seconds to wait for servers: to be there in the beginning, to answer, and to come back."""
    gpu_memory_utilization: float | None = Field(None, gt=0, le=1)
    """Share of a GPU's memory for vLLM in this process, beside training. (default: 0.4)"""
    kv_cache_gb: float | None = Field(None, gt=0, allow_inf_nan=False)
    """GiB for keys and values of vLLM in this process. (default: 1 on a CPU, on a GPU the rest of
    --gpu-memory-utilization)"""
    max_context: int | None = Field(None, ge=2)
    """Tokens of prompt and completion in vLLM in this process. (default: all the model allows)"""

    @property
    def engine_name(self) -> EngineName:
        """What `engine` stands for."""
        return self.engine or ("vllm-server" if self.server_url else "transformers")

    @property
    def sampling_timeout_s(self) -> float:
        """Seconds that one turn may take. With servers their own deadlines come first: whether a
        full queue, an update or an outage took the time is theirs to tell, not the turn's."""
        return self.deadlines.longest_s if self.engine_name == "vllm-server" else _TURN_S

    @property
    def episode_timeout_s(self) -> float:
        """Seconds that one trajectory may take: with servers, one such turn does not end it."""
        waits_s = self.sampling_timeout_s if self.engine_name == "vllm-server" else 0.0
        return _EPISODE_S + waits_s

    @property
    def deadlines(self) -> "Deadlines":
        """Of servers."""
        from agentgym.engines.vllm.settings import Deadlines

        limit_s = self.server_timeout
        hung_s = min(limit_s, Deadlines().hung_s)
        return Deadlines(connect_s=limit_s, gone_s=limit_s, hung_s=hung_s)

    @property
    def server_urls(self) -> tuple[str, ...]:
        """Of the servers that are used."""
        return self.server_url or (DEFAULT_URL,)

    @field_validator("engine", mode="before")
    @classmethod
    def _no_endpoint(cls, value: object) -> object:
        if isinstance(value, str) and value.startswith("openai"):
            raise ValueError(OF_ENDPOINTS)
        return value

    @classmethod
    def replaced_by(cls, given: Mapping[str, Any]) -> Iterable[str]:
        """Who chooses an engine wants no settings of another one from beneath."""
        engine = given.get("engine") or ("vllm-server" if given.get("server_url") else None)
        others = [name for name, owner in _OWNERS.items() if engine and owner != engine]
        return {*super().replaced_by(given), *others, *(["engine"] if engine else [])}

    @model_validator(mode="after")
    def _address_alone(self) -> Self:
        for url in self.server_url:
            if url.rstrip("/").endswith("/v1"):
                raise ValueError(f"{flag_of('server_url')} {url}: give the address without /v1")
        return self

    @model_validator(mode="after")
    def _one_engine(self) -> Self:
        """Each setting belongs to one engine."""
        for name, owner in _OWNERS.items():
            value = self.__dict__[name]
            if value != type(self).model_fields[name].default and owner != self.engine_name:
                shown = " ".join(value) if isinstance(value, tuple) else value
                raise ValueError(
                    f"{flag_of(name)} {shown} is for --engine {owner}, and this is --engine "
                    f"{self.engine_name}: give one of them"
                )
        return self
