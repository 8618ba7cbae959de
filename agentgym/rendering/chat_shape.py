"""What form of a conversation a chat template understands, found by asking it.

Templates differ in what they accept: some know no tools, refuse system messages or two messages of
one role in a row, want arguments as text or content in parts, or leave out in silence what they do
not know. Each such trait is found by one small render in which every word must show up in order, so
that nothing an env says is lost on the way to the model.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Literal

from agentgym.errors import ConfigError
from agentgym.messages import Message, ToolCall, assistant, merged, user
from agentgym.messages import system as system_message
from agentgym.rendering.base import Dialect, ToolSchema
from agentgym.rendering.call_ids import call_id_for
from agentgym.rendering.chat_template import ChatTemplate
from agentgym.rendering.plain_tools import spell_out_calls, without_tools

PROBE_TOOL: ToolSchema = {
    "type": "function",
    "function": {
        "name": "probe_tool",
        "description": "Probe.",
        "parameters": {
            "type": "object",
            "properties": {"x": {"type": "string", "description": "Word."}},
            "required": ["x"],
        },
    },
}
_REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatShape:
    """The form of conversation that a template shows completely."""

    parts: bool = False
    """Content is a list of parts, not a string."""
    tools: bool = False
    """The template lists tools and shows their results."""
    results: bool = False
    """It shows results where no tools are to be listed; else they become user messages."""
    calls: Literal["mapping", "text", "spelled"] = "mapping"
    """Arguments are a mapping or JSON text, or the call has to stand in the content."""
    many_calls: bool = True
    """One message may make several calls; else each gets a message."""
    reasoning: Literal["field", "inline"] = "field"
    """Reasoning has a field of its own, or stands in the content."""
    thought_beside_call: bool = True
    """A message with calls may have both reasoning and content."""
    words_beside_call: bool = True
    """Words beside calls stand before the results; else they would stand after them, and are not
    shown."""
    system: bool = True
    """Else what it says begins the first user message."""
    late_system: bool = True
    """System messages may come later too; else those become user messages."""
    repeats: bool = True
    """Two messages of one role may follow each other; else they are joined."""

    def chat(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema], dialect: Dialect
    ) -> tuple[list[dict[str, Any]], Sequence[ToolSchema]]:
        """The conversation in wire format, and the tools that the template is to list."""
        messages = [with_malformed(message) for message in merged(messages)]
        if not self.tools and (tools or not self.results):
            messages, tools = without_tools(messages, tools, dialect), ()
        elif not self.tools or self.calls == "spelled":
            messages = [spell_out_calls(message, dialect) for message in messages]
        messages = [part for message in messages for part in self._split(message)]
        messages = self._joined(self._placed(messages))
        return [self._wire(_with_ids(message, dialect.name)) for message in messages], tools

    def _split(self, message: Message) -> list[Message]:
        """One message per call where the template shows only one."""
        if self.many_calls or len(message.tool_calls) < 2:
            return [message]
        first, *others = message.tool_calls
        rest = [Message(role="assistant", tool_calls=(call,)) for call in others]
        return [message.model_copy(update={"tool_calls": (first,)}), *rest]

    def _placed(self, messages: Sequence[Message]) -> list[Message]:
        """System messages where the template takes them."""
        placed = [
            message
            if message.role != "system" or index == 0 or self.late_system
            else user(message.content)
            for index, message in enumerate(messages)
        ]
        if self.system or not placed or placed[0].role != "system":
            return placed
        head, *rest = placed
        if rest and rest[0].role == "user":
            return [user(f"{head.content}\n\n{rest[0].content}"), *rest[1:]]
        return [user(head.content), *rest]

    def _joined(self, messages: Sequence[Message]) -> list[Message]:
        if self.repeats:
            return list(messages)
        joined: list[Message] = []
        for role, run in groupby(messages, key=lambda message: message.role):
            group = list(run)
            if role == "user" and len(group) > 1:
                group = [user("\n\n".join(message.content for message in group))]
            joined += group
        return joined

    def _wire(self, message: Message) -> dict[str, Any]:
        reasoning, content = message.reasoning, message.content
        if reasoning is not None and self.reasoning == "inline":
            content, reasoning = f"<think>\n{reasoning}\n</think>\n\n{content}", None
        if reasoning and content and message.tool_calls and not self.thought_beside_call:
            content, reasoning = "", f"{reasoning}\n{content}"
        chat = message.model_copy(update={"reasoning": None, "content": content}).to_chat()
        if reasoning is not None:
            chat.update(dict.fromkeys(_REASONING_FIELDS, reasoning))
        if message.tool_calls and not self.words_beside_call:
            chat["content"] = content = ""
        if self.parts:
            chat["content"] = [{"type": "text", "text": content}]
        for call in chat.get("tool_calls", ()):
            if self.calls == "text":
                arguments = json.dumps(call["function"]["arguments"], ensure_ascii=False)
                call["function"]["arguments"] = arguments
        return chat


def with_malformed(message: Message) -> Message:
    """What was attempted was said too."""
    if not message.malformed_calls:
        return message
    said = [message.content, *(call.text for call in message.malformed_calls)]
    return message.model_copy(update={"content": "\n".join(filter(None, said))})


def _with_ids(message: Message, dialect: str) -> Message:
    """Ids of calls in the form that the family's templates take."""
    if not message.tool_calls and message.tool_call_id is None:
        return message
    calls = tuple(
        call.model_copy(update={"id": call_id_for(dialect, call.id, call.name)})
        for call in message.tool_calls
    )
    answered = message.tool_call_id
    if answered is not None:
        answered = call_id_for(dialect, answered, message.name or "")
    return message.model_copy(update={"tool_calls": calls, "tool_call_id": answered})


def find_shape(template: ChatTemplate, dialect: Dialect) -> ChatShape:
    """The form in which the template shows everything.

    Raises:
        ConfigError: it does not even show what a user says.
    """
    return _Prober(template, dialect).find()


_A, _B, _C, _D, _E = (f"{letter}q{letter}" for letter in "ABCDE")


class _Prober:
    def __init__(self, template: ChatTemplate, dialect: Dialect) -> None:
        self._template = template
        self._dialect = dialect

    def find(self) -> ChatShape:
        shape = self._spoken_to()
        shape = replace(shape, system=self._shows(shape, system_message(_A), user(_B)))
        shape = replace(shape, repeats=self._shows(shape, user(_A), user(_B)))
        late = (user(_A), assistant(_B), system_message(_C), user(_D))
        shape = replace(shape, late_system=self._shows(shape, *late))
        return self._thinking(self._calling(shape))

    def _spoken_to(self) -> ChatShape:
        for shape in (ChatShape(), ChatShape(parts=True)):
            if self._shows(shape, user(_A)):
                return shape
        self._text(ChatShape(), [user(_A)])
        raise ConfigError(
            f"the chat template of {self._template.name!r} does not show what the user says"
        )

    def _calling(self, shape: ChatShape) -> ChatShape:
        """How calls and results are written, if the template lists tools at all."""
        turn = (user(_A), assistant("", ("probe_tool", {"x": _B})), _result(_C))
        for calls in ("mapping", "text", "spelled"):
            tried = replace(shape, tools=True, calls=calls)
            if self._shows(tried, *turn, tools=[PROBE_TOOL]):
                return self._calling_much(tried) if self._speaks(tried, turn) else shape
        tried = replace(shape, results=True)
        return tried if self._shows(tried, *turn) else shape

    def _speaks(self, shape: ChatShape, turn: Sequence[Message]) -> bool:
        """Whether the template writes calls as the dialect does: else it would teach another."""
        opened = self._text(shape, turn[:1], [PROBE_TOOL], prompt=True)
        written = self._text(shape, turn[:2], [PROBE_TOOL])
        pairs = enumerate(zip(opened, written, strict=False))
        begun = next((i for i, (one, other) in pairs if one != other), len(opened))
        parsed = self._dialect.parse(written[begun:], finish_reason="stop", tools=[PROBE_TOOL])
        return [call.arguments for call in parsed.calls] == [{"x": _B}]

    def _calling_much(self, shape: ChatShape) -> ChatShape:
        """Two calls in a message, and words beside one."""
        one, two = ("probe_tool", {"x": _B}), ("probe_tool", {"x": _C})
        both = (user(_A), assistant("", one, two), _result(_D), _result(_E, 1))
        many = self._shows(shape, *both, tools=[PROBE_TOOL])
        text = self._text(shape, [user(_A), assistant(_E, one), _result(_D)], [PROBE_TOOL])
        late = -1 < text.find(_D) < text.find(_E)
        return replace(shape, many_calls=many, words_beside_call=not late)

    def _thinking(self, shape: ChatShape) -> ChatShape:
        thought = Message(role="assistant", reasoning=_B, content=_C)
        inline = replace(shape, reasoning="inline")
        if not self._shows(shape, user(_A), thought) and self._shows(inline, user(_A), thought):
            return inline
        call = ToolCall(id="call_0", name="probe_tool", arguments={"x": _D})
        busy = thought.model_copy(update={"tool_calls": (call,)})
        try:
            self._text(shape, [user(_A), busy])
        except ConfigError:
            return replace(shape, thought_beside_call=False)
        return shape

    def _shows(
        self, shape: ChatShape, *messages: Message, tools: Sequence[ToolSchema] = ()
    ) -> bool:
        """Whether all words of the messages, and the tools, appear in order."""
        try:
            text = self._text(shape, messages, tools)
        except ConfigError:
            return False
        words = ["probe_tool"] * bool(tools) + [
            word
            for message in messages
            for word in (
                message.reasoning,
                message.content,
                *(call.arguments["x"] for call in message.tool_calls),
            )
            if word
        ]
        position = 0
        for word in words:
            position = text.find(word, position) + 1
            if not position:
                return False
        return True

    def _text(
        self,
        shape: ChatShape,
        messages: Sequence[Message],
        tools: Sequence[ToolSchema] = (),
        *,
        prompt: bool = False,
    ) -> str:
        chat, tools = shape.chat(messages, tools, self._dialect)
        return self._template.text(chat, tools, prompt=prompt)


def _result(content: str, index: int = 0) -> Message:
    return Message(role="tool", content=content, tool_call_id=f"call_{index}", name="probe_tool")
