"""Harmony, the message format of gpt-oss: a turn is several messages, each with a channel.

`analysis` is reasoning, `final` and `commentary` are visible, and a recipient `to=functions.NAME`
outside the analysis makes a message a call. Headers are read for what they say, not for their form:
models garble them in a few of a hundred turns. JSON, not the end token, tells where arguments end.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from agentgym.messages import ToolCall
from agentgym.rendering.base import ParsedAction, ToolSchema
from agentgym.rendering.dialects.json_calls import arguments_of, decode_json, has_no_parameters
from agentgym.rendering.dialects.reading import CUT, Turn, skip_space

START, CHANNEL, MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
CALL, RETURN = "<|call|>", "<|return|>"
_HEADER_END = re.compile(r"<\|(?:message|end|call|return)\|>")
_BODY_END = re.compile(r"<\|(?:start|channel|end|call|return)\|>")
_CHANNEL = re.compile(r"[^\w<]*([a-z]*)")
_RECIPIENT = re.compile(r"to=\s*([^\s<]+)")
_ADDRESSED_ROLE = re.compile(r"\s*(?:assistant\s*)?to=\s*([^\s<]+)")
_OTHERS_ROLE = re.compile(r"\s*(?:user|system|developer|tool|python|browser|functions)\b")
_NO_TOOL = {"assistant", "user", "all", ""}


class HarmonyDialect:
    """See the module."""

    name = "harmony"

    def parse(
        self,
        text: str,
        *,
        finish_reason: str,
        prompt_suffix: str = "",
        tools: Sequence[ToolSchema] = (),
    ) -> ParsedAction:
        """Read one turn; see `Dialect.parse`."""
        begun = _begun_message(prompt_suffix)
        turn = Turn(begun + text, cut=finish_reason == "length", raw=text, thinking=())
        reader = _Reader(turn, first_sampled=len(begun), tools=tools)
        while not turn.at_end:
            reader.read_message()
        return turn.action()

    def format_tools(self, tools: Sequence[ToolSchema]) -> str:
        """Instructions for a template that knows nothing of tools."""
        lines = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
        example = self.format_call(ToolCall(id="", name="NAME", arguments={}))
        return (
            f"You can use these tools:\n{lines}\n\n"
            f"To call one, write, with its arguments as a JSON object:\n{example}"
        )

    def format_call(self, call: ToolCall) -> str:
        """A call as the policy is to write it."""
        body = json.dumps(call.arguments, ensure_ascii=False)
        header = f"{CHANNEL}commentary to=functions.{call.name} <|constrain|>json"
        return f"{header}{MESSAGE}{body}{CALL}"

    def format_result(self, content: str) -> str:
        """A result inside a user message."""
        return f"Tool result:\n{content}"


@dataclass(frozen=True, slots=True)
class _Header:
    """What a header says, however it is written."""

    channel: str
    recipient: str
    words: str
    """What else stands behind the channel."""
    stray: str
    """Text before it that is no part of a header."""
    is_others: bool
    """Written in another's name: an invented result or question."""

    @classmethod
    def of(cls, text: str) -> "_Header":
        before, start, header = text.rpartition(START)
        role, mark, rest = header.partition(CHANNEL)
        addressed = _ADDRESSED_ROLE.match(role)
        recipient = addressed or _RECIPIENT.search(rest)
        channel = _CHANNEL.match(rest) if mark else None
        return cls(
            channel=channel[1] if channel else "",
            recipient=recipient[1].strip(".,:;\"'") if recipient else "",
            words=rest[channel.end() :].partition("<|")[0] if channel and not recipient else "",
            stray=before if start or addressed else role.lstrip().removeprefix("assistant"),
            is_others=bool(start) and _OTHERS_ROLE.match(role) is not None,
        )


@dataclass(slots=True)
class _Reader:
    """Reads message after message; `turn.position` is always where a header begins."""

    turn: Turn
    first_sampled: int
    """Where the sampled text begins, behind what the prompt began."""
    tools: Sequence[ToolSchema]

    def read_message(self) -> None:
        turn = self.turn
        begin = turn.position
        mark = _HEADER_END.search(turn.text, begin)
        end = len(turn.text) if mark is None else mark.start()
        header = _Header.of(turn.text[begin:end])
        self._say(header.stray)
        turn.position = len(turn.text) if mark is None else mark.end()
        if header.is_others:
            turn.stop()
        elif mark is None or mark.group() != MESSAGE:
            self._read_without_body(header, turn.text[begin:end])
            if mark is not None and mark.group() == RETURN:
                turn.stop()
        elif header.recipient not in _NO_TOOL and not header.channel.startswith("analysis"):
            self._read_call(header.recipient)
        else:
            self._read_words(header)

    def _say(self, text: str) -> None:
        if text.strip():
            self.turn.content.append(text.strip() + "\n")

    def _read_words(self, header: _Header) -> None:
        start = max(self.turn.position, self.first_sampled)
        text = self.turn.text[start : self._go_behind_body()].strip()
        if header.channel.startswith("analysis"):
            self.turn.thoughts.append(text)
        else:
            self._say(text)

    def _go_behind_body(self) -> int:
        """Where the body that begins here ends; the turn goes on behind it."""
        mark = _BODY_END.search(self.turn.text, self.turn.position)
        if mark is None or mark.group() == RETURN:
            self.turn.stop()
        else:
            is_next = mark.group() in {START, CHANNEL}
            self.turn.position = mark.start() if is_next else mark.end()
        return len(self.turn.text) if mark is None else mark.start()

    def _read_call(self, recipient: str) -> None:
        turn, start = self.turn, self.turn.position
        name = recipient.removeprefix("functions").removeprefix(".")
        value, end, reason = decode_json(turn.text, skip_space(turn.text, start))
        if not reason:
            turn.position = end
        body_end = self._go_behind_body()
        if not reason and turn.text[end:body_end].strip():
            reason = "text after the JSON object"
        if not turn.text[start:body_end].strip() and has_no_parameters(name, self.tools):
            value, reason = {}, ""
        fields = arguments_of(value, name=name, label=f"the arguments of {name}")
        reason = reason or fields.reason or ("" if name else "to=functions. names no tool")
        if turn.cut and body_end == len(turn.text):
            reason = CUT
        if reason:
            turn.add_malformed(turn.text[start:body_end], f"{recipient}: {reason}")
        else:
            turn.add_call(name, fields.arguments)

    def _read_without_body(self, header: _Header, text: str) -> None:
        """A header that ends before its message began."""
        if header.recipient not in _NO_TOOL and not header.channel.startswith("analysis"):
            at_end = self.turn.cut and self.turn.at_end
            self.turn.add_malformed(
                text, CUT if at_end else f"{MESSAGE} is missing before the JSON"
            )
            return
        if header.channel.startswith("analysis"):
            self.turn.thoughts.append(header.words.strip())
        elif header.channel.startswith(("final", "commentary")) and not self.turn.cut:
            self._say(header.words)


def _begun_message(prompt_suffix: str) -> str:
    """What the prompt already holds of the message that the text goes on with."""
    _, start, message = prompt_suffix.rpartition(START)
    message = (message if start else prompt_suffix).lstrip().removeprefix("assistant")
    closed = max(map(message.rfind, ("<|end|>", CALL, RETURN)))
    if closed >= 0:
        message = message[closed:].partition("|>")[2]
    return message
