"""What is said between the policy, the environment and its tools, in the OpenAI chat format.

Messages are immutable: a trajectory can hand its history to env, renderer and reward functions
without copies. `to_chat` is the only place that knows the wire format.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, field_validator

Role = Literal["system", "user", "assistant", "tool"]
ToolErrorKind = Literal["malformed", "unknown_tool", "bad_arguments", "tool_error", "timeout"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolCall(_Frozen):
    """A call the policy made that could be read."""

    id: str
    name: str
    arguments: dict[str, Any]

    def to_chat(self) -> dict[str, Any]:
        """The call as chat templates expect it: arguments stay a mapping."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


class MalformedCall(_Frozen):
    """A call the policy attempted and that must not be run."""

    id: str
    text: str
    reason: str
    """What is wrong with it, in words the model can act on."""


class ToolResult(_Frozen):
    """Answer to one call, in the order of the calls."""

    call_id: str
    name: str
    content: str
    error: ToolErrorKind | None = None
    """Why the tool did not deliver; `None` if it did."""
    seconds: float = 0.0

    def to_message(self) -> "Message":
        """The tool message that tells the model."""
        return Message(
            role="tool", content=self.content, tool_call_id=self.call_id, name=self.name or None
        )


class Message(_Frozen):
    """One entry of a conversation.

    For the assistant, `content` is the visible text without reasoning and without calls;
    `malformed_calls` are attempts that could not be read, kept so that an env can answer them.
    """

    role: Role
    content: str = ""
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    malformed_calls: tuple[MalformedCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    continues: bool = False
    """True if it stands inside the assistant's message that began before: text put into the
    policy's mouth, or what the policy said after it."""

    @field_validator("content", "reasoning")
    @classmethod
    def _is_unicode(cls, text: str | None) -> str | None:
        """Half of a surrogate pair could be said but never written down."""
        if text is not None:
            text.encode()
        return text

    def to_chat(self) -> dict[str, Any]:
        """The message as a chat template's dictionary, without empty fields."""
        chat: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.reasoning is not None:
            chat["reasoning_content"] = self.reasoning
        if self.tool_calls:
            chat["tool_calls"] = [call.to_chat() for call in self.tool_calls]
        if self.tool_call_id is not None:
            chat["tool_call_id"] = self.tool_call_id
        if self.name is not None:
            chat["name"] = self.name
        return chat


def merged(messages: Iterable[Message]) -> list[Message]:
    """The conversation as a chat template shows it: what continues a message is part of it."""
    whole: list[Message] = []
    for message in messages:
        if not message.continues or not whole:
            whole.append(message)
            continue
        last = whole[-1]
        thoughts = [text for text in (last.reasoning, message.reasoning) if text]
        update = {
            "content": last.content + message.content,
            "reasoning": "\n".join(thoughts) or None,
            "tool_calls": last.tool_calls + message.tool_calls,
            "malformed_calls": last.malformed_calls + message.malformed_calls,
        }
        whole[-1] = last.model_copy(update=update)
    return whole


def system(content: str) -> Message:
    """A system message."""
    return Message(role="system", content=content)


def user(content: str) -> Message:
    """A user message."""
    return Message(role="user", content=content)


def assistant(content: str = "", *calls: tuple[str, Mapping[str, Any]]) -> Message:
    """An assistant message; `calls` are (tool name, arguments), numbered `call_0`, `call_1`, ..."""
    tool_calls = tuple(
        ToolCall(id=f"call_{index}", name=name, arguments=dict(arguments))
        for index, (name, arguments) in enumerate(calls)
    )
    return Message(role="assistant", content=content, tool_calls=tool_calls)
