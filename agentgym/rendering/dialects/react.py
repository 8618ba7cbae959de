"""ReAct in plain text: Thought, Action, Action Input, Observation, Final Answer.

Labels stand at the beginning of a line. A call wins over an answer in the same turn, because the
answer was given before the tool's result; from an invented Observation on nothing counts. Thoughts
are reasoning beside a call or an answer; a turn of thoughts alone is what the model said.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agentgym.messages import ToolCall
from agentgym.rendering.base import ParsedAction, ToolSchema
from agentgym.rendering.dialects.action_input import read_in_brackets, read_input
from agentgym.rendering.dialects.json_calls import CallFields, decode_json, has_no_parameters
from agentgym.rendering.dialects.reading import (
    CUT,
    MAX_MALFORMED,
    Turn,
    skip_space,
    without_end_tokens,
)
from agentgym.rendering.reasoning import split_reasoning

_LABEL = re.compile(
    r"^[ \t>*_#]*(thought|action[ _]?input|action|observation|final[ _]?answer|answer)"
    r"[ \t\d*_]*[:\uff1a][*_]*",
    re.MULTILINE | re.IGNORECASE,
)
_INVENTED = re.compile(r"^[ \t]*<tool_response>", re.MULTILINE)
"""Another family's mark of a result."""
_INLINE_INPUT = re.compile(r"[ \t]action[ _]?input[ \t\d]*[:\uff1a]", re.IGNORECASE)
_INLINE_ACTION = re.compile(
    r"[ \t]action[ \t]*:(?=[ \t]*[\w.\-]+[ \t]+action[ _]?input[ \t]*:)", re.IGNORECASE
)
_FENCE = re.compile(r"`{3,}[ \t]*\w*[ \t]*\n?")
_NAME = re.compile(r"[\w.:/\-]+")
_GLUED = re.compile(r"([\w.:/\-]+)[ \t]*[(\[]")
_NO_ACTION = re.compile(r"(?:none|n/?a|null|nothing|no (?:action|tool))\b", re.IGNORECASE)
_FINISH = re.compile(r"(?:final[ _]?answer|finish)", re.IGNORECASE)


class ReActDialect:
    """See the module."""

    name = "react"

    def parse(
        self,
        text: str,
        *,
        finish_reason: str,
        prompt_suffix: str = "",
        tools: Sequence[ToolSchema] = (),
    ) -> ParsedAction:
        """Read one turn; see `Dialect.parse`."""
        reasoning, visible = split_reasoning(text, prompt_suffix=prompt_suffix)
        invented = _INVENTED.search(visible)
        visible = visible if invented is None else visible[: invented.start()]
        shown = _begun_labels(prompt_suffix) + without_end_tokens(visible)
        turn = Turn(shown, cut=finish_reason == "length", raw=text, thinking=())
        if reasoning is not None:
            turn.thoughts.append(reasoning)
        reader = _Reader(turn, tools, is_invented=invented is not None)
        while not turn.at_end:
            reader.read_section()
        return reader.action()

    def format_tools(self, tools: Sequence[ToolSchema]) -> str:
        """Instructions for a template that knows nothing of tools."""
        lines = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
        return (
            f"You can use these tools:\n{lines}\n\nTo call one, write:\n"
            "Thought: what to do next\nAction: the tool's name\n"
            "Action Input: its arguments as a JSON object\n"
            "and stop; its result comes as an Observation. When you know the answer, write:\n"
            "Thought: why\nFinal Answer: the answer"
        )

    def format_call(self, call: ToolCall) -> str:
        """A call as the policy is to write it."""
        body = json.dumps(call.arguments, ensure_ascii=False)
        return f"Action: {call.name}\nAction Input: {body}"

    def format_result(self, content: str) -> str:
        """A result inside a user message."""
        return f"Observation: {content}"


def _kind(label: re.Match[str]) -> str:
    return label[1].lower().replace("_", " ").replace(" ", "")


def _begun_labels(prompt_suffix: str) -> str:
    """The label, or labels, that the prompt ends with and the text goes on after."""
    labels = list(_LABEL.finditer(prompt_suffix))
    if not labels or prompt_suffix[labels[-1].end() :].strip():
        return ""
    is_input = _kind(labels[-1]) == "actioninput" and len(labels) > 1
    first = labels[-2] if is_input and _kind(labels[-2]) == "action" else labels[-1]
    return "" if _kind(first) == "observation" else prompt_suffix[first.start() :]


@dataclass(slots=True)
class _Reader:
    """Reads section after section."""

    turn: Turn
    tools: Sequence[ToolSchema]
    said: list[str] = field(default_factory=list)
    """Thoughts of the labels."""
    answer: str | None = None
    is_invented: bool = False
    num_far_inputs: int = 0

    def read_section(self) -> None:
        turn = self.turn
        label = _LABEL.search(turn.text, turn.position)
        end = len(turn.text) if label is None else label.start()
        turn.content.append(turn.text[turn.position : end])
        turn.position = len(turn.text) if label is None else label.end()
        match _kind(label) if label else "":
            case "observation":
                self.is_invented = True
                turn.stop()
            case "thought":
                self._read_thought()
            case "finalanswer" | "answer":
                self._read_answer()
            case "action":
                self._read_action()
            case "actioninput":
                turn.add_malformed(self._take_section(), "Action Input without an Action before it")

    def action(self) -> ParsedAction:
        """What was found."""
        turn = self.turn
        attempted = bool(turn.calls or turn.malformed)
        thoughts = "\n".join(self.said)
        if attempted or self.answer is not None or self.is_invented:
            turn.thoughts += [thoughts] if self.said else []
        else:
            turn.content.append(thoughts)
        if self.answer is None or attempted:
            return turn.action()
        if turn.cut:
            turn.content.append(self.answer)
            return turn.action()
        return replace(turn.action(), final_answer=self.answer)

    def _take_section(self) -> str:
        start = self.turn.position
        label = _LABEL.search(self.turn.text, start)
        self.turn.position = len(self.turn.text) if label is None else label.start()
        return self.turn.text[start : self.turn.position].strip()

    def _read_thought(self) -> None:
        """A thought; a call may follow on its line."""
        turn, start = self.turn, self.turn.position
        thought = self._take_section()
        inline = _INLINE_ACTION.search(turn.text, start, turn.position)
        if inline is None:
            self.said.append(thought)
            return
        self.said.append(turn.text[start : inline.start()].strip())
        turn.position = inline.end()
        self._read_action()

    def _read_answer(self) -> None:
        """An answer may hold labels; only an Observation or a call of a tool ends it."""
        turn, start = self.turn, self.turn.position
        turn.position = end = len(turn.text)
        for label in _LABEL.finditer(turn.text, start):
            kind = _kind(label)
            name = _NAME.match(turn.text, skip_space(turn.text, label.end()))
            is_call = kind == "action" and name is not None and name[0] in self._names()
            if kind == "observation" or is_call:
                turn.position = end = label.start()
                break
        if self.answer is None:
            self.answer = turn.text[start:end].strip()

    def _names(self) -> set[str]:
        return {tool["function"]["name"] for tool in self.tools}

    def _read_action(self) -> None:
        turn, start = self.turn, self.turn.position
        section = self._take_section()
        inline = _INLINE_INPUT.search(turn.text, start, turn.position)
        if inline is not None:
            section = turn.text[start : inline.start()].strip()
            turn.position = inline.end()
            has_input = True
        else:
            has_input = self._takes_input_label()
        name = section.partition("\n")[0].strip(" \t*`\"'")
        bare = name.strip("[]<>().: ")
        if has_input and bare in self._names():
            name = bare
        if name in self._names() or not self._is_no_call(name, has_input):
            self._read_call(start, name, section, has_input)

    def _takes_input_label(self) -> bool:
        label = _LABEL.match(self.turn.text, self.turn.position)
        if label is None or _kind(label) != "actioninput":
            return False
        self.turn.position = label.end()
        return True

    def _is_no_call(self, name: str, has_input: bool) -> bool:
        """Whether the action is none, or the answer; its input is then taken."""
        finish = _FINISH.match(name)
        if _NO_ACTION.match(name):
            if has_input:
                self._take_section()
            return True
        if finish is None:
            return False
        rest = name[finish.end() :].strip()
        if rest and not (rest[0] in "([" and rest[-1] in ")]"):
            return False
        answer = self._take_section() if has_input else rest[1:-1]
        self.answer = answer.strip("\"'") if self.answer is None else self.answer
        return True

    def _read_call(self, start: int, name: str, section: str, has_input: bool) -> None:
        turn = self.turn
        fields = self._with_input(name) if has_input else self._without_input(name, section)
        if fields.reason:
            is_open = turn.cut and turn.at_end
            reason = CUT if is_open else fields.reason
            turn.add_malformed(turn.text[start : turn.position], reason)
        else:
            turn.add_call(fields.name, fields.arguments)

    def _with_input(self, name: str) -> CallFields:
        turn = self.turn
        start = skip_space(turn.text, turn.position)
        fence = _FENCE.match(turn.text, start)
        start = start if fence is None else fence.end()
        value, end, reason = self._decode(start)
        if isinstance(value, dict) and not reason:
            turn.position = end
            return self._checked(name, value, is_fenced=fence is not None)
        section = self._take_section()
        body = section[fence.end() - fence.start() :] if fence else section
        if turn.cut and turn.at_end:
            return CallFields("", {}, CUT)
        return self._named(name, read_input(body.strip().strip("`"), name=name, tools=self.tools))

    def _decode(self, start: int) -> tuple[Any, int, str]:
        """The JSON object at `start`; it may hold lines that look like labels."""
        text = self.turn.text
        if not text.startswith("{", start):
            return None, start, "no JSON object"
        label = _LABEL.search(text, start)
        stop = len(text) if label is None else label.start()
        value, end, reason = decode_json(text[start:stop])
        if reason and label is not None and self.num_far_inputs < MAX_MALFORMED:
            self.num_far_inputs += 1
            return decode_json(text, start)
        return value, start + end, reason

    def _checked(self, name: str, arguments: Mapping[str, Any], *, is_fenced: bool) -> CallFields:
        """The call, unless its line goes on after the JSON object."""
        text = self.turn.text
        if is_fenced:
            position = skip_space(text, self.turn.position)
            fence = _FENCE.match(text, position)
            self.turn.position = position if fence is None else fence.end()
        else:
            end = text.find("\n", self.turn.position)
            line = text[self.turn.position : len(text) if end < 0 else end]
            if line.strip(" \t`*"):
                self._take_section()
                return CallFields("", {}, f"text after the JSON object: {line.strip()[:40]!a}")
            self.turn.position += len(line)
        return self._named(name, CallFields(name, dict(arguments)))

    def _named(self, name: str, fields: CallFields) -> CallFields:
        if fields.reason or _NAME.fullmatch(name):
            return fields
        why = f"{name!a} is no tool name" if name else "the Action names no tool"
        return CallFields("", {}, why)

    def _without_input(self, name: str, section: str) -> CallFields:
        """Everything stands behind the Action: a JSON object, `name(...)`, or `name[...]`."""
        fence = _FENCE.match(section)
        body = section if fence is None else section[fence.end() :].rstrip("` \n")
        glued = _GLUED.match(body)
        if self.turn.cut and self.turn.at_end and not body.endswith(("}", ")", "]")):
            return CallFields("", {}, CUT)
        if body.startswith("{"):
            return read_input(body, name=None, tools=self.tools)
        if glued is not None:
            return read_in_brackets(body[glued.end(1) :], name=glued[1], tools=self.tools)
        if has_no_parameters(name, self.tools):
            return CallFields(name, {})
        return self._named(name, CallFields("", {}, f"the Action Input of {name!a} is missing"))
