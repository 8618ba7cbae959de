"""What vLLM sampled, as a `Generation`; held against what was asked for and by whose weights."""

from collections.abc import Mapping, Sequence
from operator import index
from typing import Any, NamedTuple

from agentgym.constraint import Constraint, ConstraintError
from agentgym.engines.base import FinishReason, Generation, Sampling
from agentgym.errors import EngineError

FIRST_LABEL = "default"
"""What vLLM calls the weights it has loaded at its start."""


_NO_LOGPROB = -9999.0
"""What vLLM's server writes for a logprob that is not a number, or is endless."""


class Span(NamedTuple):
    """Tokens `start` to `end` - 1 were sampled by the weights of that label."""

    label: str
    start: int
    end: int


class FinishedTurn(NamedTuple):
    """How vLLM says that a turn ended."""

    token_ids: Sequence[int]
    reason: str | None
    ended_by: object
    """Its `stop_reason`."""


class Reply(NamedTuple):
    """One choice of `/inference/v1/generate`."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: str
    ended_by: object
    """The stop string or stop token, if one ended it."""
    spans: tuple[Span, ...]

    @property
    def labels(self) -> list[str]:
        """Of the weights that sampled it, in order."""
        return [span.label for span in self.spans]


def read_reply(answer: Any) -> Reply:
    """The only choice of an answer.

    Raises:
        EngineError: it holds none, or not all that was asked for.
    """
    try:
        choice = answer["choices"][0]
        content = choice["logprobs"]["content"]
        return Reply(
            token_ids=tuple(map(index, choice["token_ids"])),
            logprobs=tuple(float(entry["logprob"]) for entry in content),
            finish_reason=str(choice["finish_reason"]),
            ended_by=choice["stop_reason"],
            spans=tuple(
                Span(str(span["version"]), int(span["start"]), int(span["end"]))
                for span in choice["weight_versions"]
            ),
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        shown = " ".join(str(answer).split())[:200]
        raise EngineError(f"the server's reply is not that of vLLM 0.32: {shown}") from error


def to_generation(reply: Reply, sampling: Sampling, versions: Mapping[str, int]) -> Generation:
    """The reply as a turn.

    Args:
        reply: what the server gave.
        sampling: what was asked for.
        versions: policy version by label.

    Raises:
        EngineError: it was aborted, or is no turn.
    """
    if len(reply.token_ids) > sampling.max_tokens:
        num = len(reply.token_ids)
        raise EngineError(f"the server gave {num} tokens, asked for {sampling.max_tokens}")
    if min(reply.logprobs, default=0.0) <= _NO_LOGPROB:
        raise EngineError("the server sampled a token whose logprob is no number")
    ended = FinishedTurn(reply.token_ids, reply.finish_reason, reply.ended_by)
    return Generation(
        token_ids=reply.token_ids,
        logprobs=reply.logprobs,
        finish_reason=finish_reason(ended, sampling),
        **_stamps(reply, versions),
    )


class ConstraintRefusedError(ConstraintError, EngineError):
    """vLLM cannot enforce the constraint of a turn: the env's failure, told by an engine."""

    def __init__(self, constraint: Constraint, reason: str) -> None:
        super().__init__(f"vLLM cannot enforce {constraint}: {' '.join(reason.split())}")


def finish_reason(turn: FinishedTurn, sampling: Sampling) -> FinishReason:
    """vLLM's reason in the engine's words; a stop token comes before a stop string.

    Raises:
        ConstraintRefusedError: vLLM could not make a grammar of its constraint.
        EngineError: the turn did not end by itself.
    """
    if turn.reason == "length":
        return "length"
    if turn.reason == "error" and sampling.constraint is not None and not turn.token_ids:
        raise ConstraintRefusedError(sampling.constraint, "it cannot make a grammar of it")
    if turn.reason != "stop" or not turn.token_ids:
        num = len(turn.token_ids)
        raise EngineError(f"vLLM ended a turn of {num} tokens with {turn.reason!r}")
    if isinstance(turn.ended_by, str) and turn.token_ids[-1] not in sampling.stop_token_ids:
        return "stop_string"
    return "stop"


def _stamps(reply: Reply, versions: Mapping[str, int]) -> dict[str, Any]:
    stamps = [versions[span.label] for span in reply.spans for _ in range(span.start, span.end)]
    if len(stamps) != len(reply.token_ids) or not stamps:
        raise EngineError(
            f"the server stamped {len(stamps)} of {len(reply.token_ids)} tokens with the version "
            "of its weights"
        )
    several = len(set(stamps)) > 1
    return {"policy_version": stamps[0], "token_versions": tuple(stamps) if several else ()}
