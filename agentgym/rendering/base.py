"""Between messages and token ids.

A renderer never re-encodes what was sampled: the next prompt is the trace so far plus `bridge`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from agentgym.messages import MalformedCall, Message, ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedAction:
    """What the text of one turn says."""

    content: str = ""
    """Visible text, without reasoning and calls."""
    reasoning: str | None = None
    calls: tuple[ToolCall, ...] = ()
    malformed: tuple[MalformedCall, ...] = ()
    truncated: bool = False
    """Cut by length, so what stands at the end is not to be trusted."""
    raw: str = field(default="", repr=False)

    def to_message(self) -> Message:
        """The assistant message that enters the history."""
        return Message(
            role="assistant",
            content=self.content,
            reasoning=self.reasoning,
            tool_calls=self.calls,
            malformed_calls=self.malformed,
        )


class Dialect(Protocol):
    """How one model family writes tool calls; pure functions that never raise."""

    name: str

    def parse(self, text: str, *, finish_reason: str, prompt_suffix: str = "") -> ParsedAction:
        """Read one turn in linear time; `prompt_suffix` is the end of the prompt before it."""
        ...


class Renderer(Protocol):
    """Messages and tools to ids, sampled ids to an action."""

    @property
    def stop_token_ids(self) -> frozenset[int]:
        """Ids that end a turn."""
        ...

    def render(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> list[int]:
        """The first prompt, generation prompt included; `tools` are JSON schemas."""
        ...

    def bridge(
        self, ids: Sequence[int], new_messages: Sequence[Message], *, turn_closed: bool
    ) -> list[int]:
        """Ids to append to `ids` so that the policy answers `new_messages`.

        Args:
            ids: the trace so far, which ends with a sampled turn.
            new_messages: what the env said since.
            turn_closed: whether that turn ended with a stop token.
        """
        ...

    def encode(self, text: str) -> list[int]:
        """Ids of content; special tokens in the text stay text."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, special tokens included; a view for people and parsers."""
        ...

    def parse(self, ids: Sequence[int], *, finish_reason: str) -> ParsedAction:
        """What the sampled turn says; never raises."""
        ...
