"""Tools for chat templates that know nothing of them: everything becomes system and user text."""

from collections.abc import Sequence
from itertools import groupby

from agentgym.messages import Message, system, user
from agentgym.rendering.base import Dialect, ToolSchema


def without_tools(
    messages: Sequence[Message], tools: Sequence[ToolSchema], dialect: Dialect
) -> list[Message]:
    """The same conversation in system, user and assistant messages alone."""
    plain: list[Message] = []
    for is_tool, run in groupby(messages, key=lambda message: message.role == "tool"):
        if is_tool:
            plain.append(user("\n".join(dialect.format_result(m.content) for m in run)))
        else:
            plain += [spell_out_calls(message, dialect) for message in run]
    return _with_instructions(plain, dialect.format_tools(tools)) if tools else plain


def spell_out_calls(message: Message, dialect: Dialect) -> Message:
    """The message with its calls written out in its content."""
    if not message.tool_calls:
        return message
    parts = [message.content, *map(dialect.format_call, message.tool_calls)]
    return Message(
        role="assistant", content="\n".join(filter(None, parts)), reasoning=message.reasoning
    )


def _with_instructions(messages: list[Message], instructions: str) -> list[Message]:
    if messages and messages[0].role == "system":
        first = system(f"{messages[0].content}\n\n{instructions}")
        return [first, *messages[1:]]
    return [system(instructions), *messages]
