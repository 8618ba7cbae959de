"""How a chat template ends an assistant's turn, found by comparing renders.

An end is either a token of its own (`<|im_end|>`), or the token that opens what comes next
(GLM: `<|user|>`, `<|observation|>`): then nothing closes the last message of a conversation. A turn
with calls may end otherwise than one without (gpt-oss: `<|call|>`), and the tokens that are the
spelling of a call (`</tool_call>`) are those of which two calls have more than one.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from agentgym.errors import ConfigError
from agentgym.messages import Message, ToolCall, user
from agentgym.rendering.base import ToolSchema
from agentgym.rendering.chat_shape import PROBE_TOOL, ChatShape
from agentgym.rendering.special import SpecialTokens

_MARKS = tuple(map(chr, range(0xE0F0, 0xE0FF)))
"""One of them stands for an assistant's words; private use, so no template knows them."""
_HEARD = "HqH"


class _Render(Protocol):
    def __call__(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema], *, prompt: bool
    ) -> str: ...


class TurnEnd(NamedTuple):
    """The end of one kind of turn."""

    token: str
    """Ends the turn where an answer follows."""
    last: str | None
    """Ends it where nothing follows; `None` if nothing does."""
    opens: bool
    """Whether `token` belongs to the answer."""

    @property
    def changes(self) -> bool:
        """Whether a turn's end becomes another one once it is history."""
        return self.last not in (None, self.token)


class TurnEnds:
    """Ends of turns without and with calls.

    Args:
        render: the template, over messages.
        special: the tokenizer's special tokens.
        name: of the model, for errors.
        shape: of the conversation.
        known: further tokens that end a turn, as `eos`.

    Raises:
        ConfigError: the template puts no token after an assistant's message.
    """

    def __init__(
        self,
        render: _Render,
        special: SpecialTokens,
        *,
        name: str,
        shape: ChatShape,
        known: frozenset[str],
    ) -> None:
        self._render, self._special, self._known = render, special, known
        self._syntax: frozenset[str] = frozenset()
        self._tail: set[str] = set()
        """What ends a conversation: the end of its last turn, and what a template adds to it."""
        self.of_words = self._find_of_words(name)
        if shape.many_calls:
            self._syntax = self._find_syntax()
        self.of_calls = self._find_of_calls()

    @property
    def tokens(self) -> frozenset[str]:
        """What the policy ends a turn with: not what its end becomes once it is history."""
        return self._known | {end.last or end.token for end in (self.of_words, self.of_calls)}

    def answering(self, new: Sequence[Message]) -> TurnEnd:
        """The end of the turn that `new` answers."""
        return self.of_calls if new and new[0].role == "tool" else self.of_words

    def following(self, new: Sequence[Message], tools: Sequence[ToolSchema]) -> str:
        """What the template writes after a turn that `new` answers, its end token included."""
        after = self._after(new, tools, prompt=True)
        found = self._endings(after)
        return after[found[0].start() :] if found else after

    def without_end(self, text: str) -> str:
        """A render without generation prompt, cut before the end of its last turn."""
        while True:
            text = text.rstrip()
            tokens = self.tokens | self._tail
            token = next((token for token in tokens if text.endswith(token)), None)
            if token is None:
                return text
            text = text.removesuffix(token)

    def _after(
        self,
        new: Sequence[Message],
        tools: Sequence[ToolSchema],
        *,
        prompt: bool,
        num_calls: int = 0,
    ) -> str:
        """What stands after an assistant's words that `new` answers."""
        mark = next(m for m in _MARKS if not any(m in message.content for message in new))
        said = stand_in(new, mark, num_calls)
        text = self._render([user("x"), said, *new], tools, prompt=prompt)
        return text.rpartition(mark)[2]

    def _endings(self, text: str) -> list[re.Match[str]]:
        """Special tokens that are no spelling of a call."""
        return [match for match in self._special.find(text) if match.group() not in self._syntax]

    def _find_of_words(self, name: str) -> TurnEnd:
        answered = self._after([user(_HEARD)], (), prompt=True).partition(_HEARD)[0]
        found = self._endings(answered)
        if not found or answered[: found[0].start()].strip():
            raise ConfigError(
                f"the chat template of {name!r} puts no end token after an assistant's message, so "
                "a sampled turn could not be closed"
            )
        tokens = [match.group() for match in found]
        token = next((token for token in tokens if token in self._known), tokens[0])
        last = self._last(token, self._after((), (), prompt=False))
        return TurnEnd(token, last, opens=last is None or self._opens_words(token, len(found)))

    def _opens_words(self, token: str, num_between: int) -> bool:
        """Whether it is the only token between two turns, and the one that opens the first."""
        text = self._render([user(_HEARD)], (), prompt=False)
        first = self._special.find(text.partition(_HEARD)[0])
        return num_between == 1 and bool(first) and first[-1].group() == token

    def _find_syntax(self) -> frozenset[str]:
        """Special tokens of which a second call brings more."""
        one, two = (
            Counter(match.group() for match in self._special.find(self._calling(number)))
            for number in (1, 2)
        )
        return frozenset(two - one)

    def _calling(self, number: int) -> str:
        said = stand_in((), _MARKS[0], number)
        return self._render([user("x"), said], [PROBE_TOOL], prompt=False)

    def _find_of_calls(self) -> TurnEnd:
        result = Message(role="tool", content=_HEARD, tool_call_id="call_0", name="probe_tool")
        answered = self._after([result], [PROBE_TOOL], prompt=True).partition(_HEARD)[0]
        found = [match.group() for match in self._endings(answered)]
        words = self.of_words
        known = self._known if words.opens else self._known | {words.token}
        token = next((token for token in found if token in known), None)
        if token is None and not found:
            return words
        token = token or found[0]
        last = self._last(token, self._after((), [PROBE_TOOL], prompt=False, num_calls=1))
        opens = last is None or words.opens or (len(found) == 1 and token != words.token)
        return TurnEnd(token, last, opens)

    def _last(self, token: str, text: str) -> str | None:
        """What ends a turn in `text` that nothing follows."""
        tokens = [match.group() for match in self._endings(text)]
        last = token if token in tokens else next(iter(tokens), None)
        if last is not None:
            self._tail.update(tokens[tokens.index(last) :])
        return last


def stand_in(new: Sequence[Message], mark: str, num_calls: int = 0) -> Message:
    """An assistant message that `new` can answer: it made the calls that are answered."""
    results = [message for message in new if message.role == "tool"]
    calls = [
        ToolCall(id=m.tool_call_id or "call_0", name=m.name or "tool", arguments={"x": mark})
        for m in results
    ] or [
        ToolCall(id=f"call_{index}", name="probe_tool", arguments={"x": mark})
        for index in range(num_calls)
    ]
    return Message(role="assistant", content="" if calls else mark, tool_calls=tuple(calls))
