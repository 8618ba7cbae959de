"""Task in, trajectory out: the records that cross every boundary of the system.

`RolloutRequest` says what to play, `RolloutOutput` what happened. Both are immutable and survive a
trip through JSON unchanged, so that training, evaluation and debugging share one record.
"""

import json
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, computed_field, model_validator

from agentgym.errors import ConfigError
from agentgym.messages import Message
from agentgym.tokens import Segment, flat_ids, flat_logprobs, flat_mask


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Task(_Record):
    """One problem instance: the prompt's data plus what the reward needs."""

    id: str
    """Unique within its task set."""
    data: dict[str, Any] = Field(default_factory=dict)
    """JSON values."""

    def __getitem__(self, key: str) -> Any:
        return self.data[key]


class StopReason(StrEnum):
    """Why a trajectory ended."""

    FINAL_ANSWER = "final_answer"
    TERMINATED = "terminated"
    TRUNCATED = "truncated"
    MAX_TURNS = "max_turns"
    MAX_TOOL_CALLS = "max_tool_calls"
    MAX_TIME = "max_time"
    LENGTH = "length"
    CONTEXT_OVERFLOW = "context_overflow"
    EMPTY = "empty"
    MALFORMED = "malformed"
    ENV_ERROR = "env_error"
    REWARD_ERROR = "reward_error"
    API_ERROR = "api_error"
    TIMEOUT_ENV = "timeout_env"
    INFRA_ERROR = "infra_error"
    CANCELLED = "cancelled"

    @property
    def is_failure(self) -> bool:
        """True if the infrastructure failed, so that the trajectory says nothing of the policy."""
        return self in _FAILURES


_FAILURES = frozenset(
    {
        StopReason.ENV_ERROR,
        StopReason.REWARD_ERROR,
        StopReason.API_ERROR,
        StopReason.TIMEOUT_ENV,
        StopReason.INFRA_ERROR,
        StopReason.CANCELLED,
    }
)


class Budget(_Record):
    """Limits of one trajectory. The smallest remainder is what the sampler is given."""

    max_turns: int = Field(10, ge=1)
    max_sampled_tokens: int = Field(1024, ge=1)
    """Over all turns."""
    max_turn_tokens: int | None = Field(None, ge=1)
    """Sampled in one turn."""
    max_total_tokens: int | None = Field(None, ge=2)
    """Prompt, observations and sampled tokens; the engine's context length also bounds it."""
    max_tool_calls: int = Field(64, ge=0)
    max_seconds: float = Field(600.0, gt=0)
    """Wall clock of the whole trajectory."""
    max_parse_errors: int = Field(5, ge=0)
    """Turns with a malformed call; one more ends the trajectory."""
    max_blank_turns: int = Field(3, ge=1)
    """The so manyth turn that says nothing ends the trajectory."""


class RolloutRequest(_Record):
    """One trajectory to produce."""

    request_id: str
    """Unique within a run."""
    group_id: str
    """Trajectories of the same task instance, compared with each other."""
    env: str
    """Registered id."""
    task: Task
    seed: int
    """Of the env's reset: equal within a group."""
    sampling_seed: int
    """Of the sampler: different within a group."""
    attempt: int = Field(0, ge=0)
    """Attempts before this one that the infrastructure failed."""

    @property
    def attempt_id(self) -> str:
        """Names this attempt to the engine; that of the first one is the request's id."""
        return f"{self.request_id}~{self.attempt}" if self.attempt else self.request_id


class Turn(_Record):
    """One policy message and the env's answer."""

    index: int
    """From 0."""
    action: Message
    text: str = ""
    """As it was sampled, without the end token."""
    finish_reason: str
    observation: tuple[Message, ...] = ()
    reward: float | None = None


class RolloutOutput(_Record):
    """The record of one episode.

    Names known from other systems are views of the last trace: nothing is stored twice, and lengths
    agree by construction. Views are written to JSON and ignored when read back.
    """

    request_id: str
    group_id: str
    task_id: str
    env: str
    seed: int
    messages: tuple[Message, ...]
    segments: tuple[Segment, ...]
    """The last trace: what the policy saw in the end."""
    branches: tuple[tuple[Segment, ...], ...] = ()
    """Earlier traces, oldest first: what it saw before a template or a scheduler rewrote the
    history. Every sampled token that is trained is trained in one trace only."""
    rewards: dict[str, float | None] = Field(default_factory=dict)
    """By name; `None` = unscored."""
    reward: float | None = None
    """Weighted sum of the scored rewards; `None` if there is none."""
    turn_rewards: tuple[float, ...] = ()
    stop_reason: StopReason
    error: str | None = None
    rollout_infos: dict[str, Any] = Field(default_factory=dict)
    """JSON values: tool calls and failures by kind, what the env reported."""
    timings: dict[str, float] = Field(default_factory=dict)
    """Seconds, by phase."""

    @model_validator(mode="before")
    @classmethod
    def _views_are_derived(cls, data: Any) -> Any:
        if isinstance(data, dict):
            data = {key: value for key, value in data.items() if key not in _VIEWS}
            if "return" in data:
                data["reward"] = data.pop("return")
        return data

    @property
    def traces(self) -> tuple[tuple[Segment, ...], ...]:
        """All traces in the order of their ends; each is a sequence to train on."""
        return (*self.branches, self.segments)

    @property
    def spoken(self) -> list[Segment]:
        """What the policy sampled, over all traces, each token once; not what was taken back."""
        return [segment for trace in self.traces for segment in trace if segment.is_spoken]

    @property
    def sampled(self) -> list[Segment]:
        """What of it the policy is trained on: all but constrained turns."""
        return [segment for segment in self.spoken if segment.is_trained]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def policy_versions(self) -> list[int]:
        """Distinct versions that sampled this trajectory, ascending."""
        return sorted({v for trace in self.traces for segment in trace for v in segment.versions})

    @computed_field  # type: ignore[prop-decorator]
    @property
    def prompt_token_ids(self) -> list[int]:
        """Ids before the first sampled token."""
        return flat_ids(self.segments[: self._first_sampled])

    @computed_field  # type: ignore[prop-decorator]
    @property
    def response_token_ids(self) -> list[list[int]]:
        """One list per turn: sampled ids, then what the env and the template added."""
        return [flat_ids(turn) for turn in self._turns]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def response_loss_mask(self) -> list[list[int]]:
        """Like `response_token_ids`: 1 on trained tokens, else 0."""
        return [[int(m) for m in flat_mask(turn)] for turn in self._turns]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def rollout_logprobs(self) -> list[list[float]]:
        """Like `response_token_ids`: nats, 0.0 where the mask is 0."""
        return [flat_logprobs(turn) for turn in self._turns]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def num_turns(self) -> int:
        """Turns of the policy, over all traces."""
        return len(self.spoken)

    @property
    def token_ids(self) -> list[int]:
        """[T] every id of the last trace."""
        return flat_ids(self.segments)

    @property
    def loss_mask(self) -> list[bool]:
        """[T] True exactly on the sampled tokens of the last trace that are trained."""
        return flat_mask(self.segments)

    @property
    def logprobs(self) -> list[float]:
        """[T] at sampling time, in nats; 0.0 where `loss_mask` is False."""
        return flat_logprobs(self.segments)

    @property
    def is_scored(self) -> bool:
        """True if the trajectory is evidence about the policy."""
        return self.reward is not None and not self.stop_reason.is_failure

    @property
    def _first_sampled(self) -> int:
        sampled = (i for i, s in enumerate(self.segments) if s.source == "sampled")
        return next(sampled, len(self.segments))

    @property
    def _turns(self) -> list[list[Segment]]:
        turns: list[list[Segment]] = []
        for segment in self.segments[self._first_sampled :]:
            if segment.source == "sampled":
                turns.append([])
            turns[-1].append(segment)
        return turns

    def to_json(self) -> str:
        """One line; the weighted sum is called `return` there."""
        data = self.model_dump(mode="json")
        data["return"] = data.pop("reward")
        return json.dumps(data, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, line: str) -> Self:
        """Inverse of `to_json`."""
        return cls.model_validate_json(line)


_VIEWS = frozenset(RolloutOutput.model_computed_fields)


def to_jsonl(outputs: Iterable[RolloutOutput]) -> bytes:
    """Content of a file that `read_jsonl` reads: one line per trajectory."""
    return "".join(output.to_json() + "\n" for output in outputs).encode()


def read_jsonl(path: Path) -> Iterator[RolloutOutput]:
    """Trajectories of a file.

    Raises:
        ConfigError: a line is no trajectory; names the line.
    """
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                yield RolloutOutput.from_json(line)
            except ValidationError as error:
                raise ConfigError(f"{path}:{number} is no trajectory: {error}") from error
