"""Between messages and token ids.

A renderer never re-encodes what was sampled: the next prompt is the trace so far plus `bridge`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from agentgym.jsonable import why_not_json
from agentgym.messages import MalformedCall, Message, ToolCall
from agentgym.tokens import TokenTrace

Call = TypeVar("Call", ToolCall, MalformedCall)
ToolSchema = Mapping[str, Any]
"""OpenAI's: `{"type": "function", "function": {name, description, parameters}}`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedAction:
    """What the text of one turn says."""

    content: str = ""
    """Visible text, without reasoning and calls."""
    reasoning: str | None = None
    calls: tuple[ToolCall, ...] = ()
    malformed: tuple[MalformedCall, ...] = ()
    final_answer: str | None = None
    """Where the dialect marks it (ReAct); it then becomes the message's content."""
    truncated: bool = False
    """Cut by length, so what stands at the end is not to be trusted."""
    raw: str = field(default="", repr=False)
    """All of it as it was sampled, without the end token."""

    def to_message(self, *, turn: int) -> Message:
        """The assistant message that enters the history; call ids become unique in it.

        A call whose arguments could not be written down again counts as malformed.
        """
        reasons = {call.id: why_not_json([call.name, call.arguments]) for call in self.calls}
        spoilt = tuple(
            MalformedCall(id=call.id, text=ascii(call.name), reason=f"the call holds {reason}")
            for call in self.calls
            if (reason := reasons[call.id]) is not None
        )

        def numbered(call: Call) -> Call:
            return call.model_copy(update={"id": f"{call.id}_turn_{turn}"})

        return Message(
            role="assistant",
            content=self.content if self.final_answer is None else self.final_answer,
            reasoning=self.reasoning,
            tool_calls=tuple(numbered(call) for call in self.calls if reasons[call.id] is None),
            malformed_calls=tuple(map(numbered, self.malformed + spoilt)),
        )


class Dialect(Protocol):
    """How one model family writes tool calls; pure functions.

    The `format_*` functions serve models whose chat template knows nothing of tools.
    """

    name: str

    def parse(
        self,
        text: str,
        *,
        finish_reason: str,
        prompt_suffix: str = "",
        tools: Sequence[ToolSchema] = (),
    ) -> ParsedAction:
        """Read one turn; never raises, linear time.

        Args:
            text: what was sampled, without the stop token.
            finish_reason: `stop`, `stop_string`, or `length` if the turn was cut.
            prompt_suffix: what stands before it in the same assistant message, from the generation
                prompt on; it may leave the reasoning open.
            tools: their schemas give the types of untyped arguments and the names that count.
        """
        ...

    def format_tools(self, tools: Sequence[ToolSchema]) -> str:
        """Instructions for a system message."""
        ...

    def format_call(self, call: ToolCall) -> str:
        """A call as the policy is to write it."""
        ...

    def format_result(self, content: str) -> str:
        """A tool's result as part of a user message."""
        ...


class Renderer(Protocol):
    """Messages and tools to ids, sampled ids to an action."""

    @property
    def stop_token_ids(self) -> frozenset[int]:
        """Ids that end a turn."""
        ...

    def render(self, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> list[int]:
        """The first prompt, generation prompt included."""
        ...

    def bridge(
        self, trace: TokenTrace, new_messages: Sequence[Message], *, tools: Sequence[ToolSchema]
    ) -> list[int]:
        """Ids to append to `trace` so that the policy answers `new_messages`.

        Args:
            trace: ends with a sampled turn, closed by a stop token or not.
            new_messages: what the env said since.
            tools: as given to `render`.
        """
        ...

    def rewritten(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema], *, num_new: int
    ) -> list[int] | None:
        """The whole next prompt where the template shows earlier turns otherwise than before.

        Args:
            messages: the whole conversation, the new ones included.
            tools: as given to `render`.
            num_new: how many messages at the end the policy has not seen yet.

        Returns:
            [T] ids, generation prompt included; `None` if history stays, so that `bridge` holds.
        """
        ...

    def encode(self, text: str) -> list[int]:
        """Ids of content; special tokens in the text stay text."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, special tokens included; a view for people and parsers."""
        ...

    def parse(
        self,
        ids: Sequence[int],
        *,
        finish_reason: str,
        tools: Sequence[ToolSchema] = (),
        prefix: str = "",
    ) -> ParsedAction:
        """What the sampled turn says; never raises.

        Args:
            ids: the sampled turn.
            finish_reason: as the engine gave it.
            tools: as given to `render`.
            prefix: text of the same assistant message before `ids`, where the turn goes on with it.
        """
        ...
