"""Rewards for the form of what a policy says, and for its length.

All of them judge the words and tokens of the whole trajectory and cost nothing; none says whether
the task was solved. Those with numbers of their own are classes: register an instance under another
name to change them. Forms that others check by a regular expression are checked part by part here,
so that a second answer, text behind it or an empty block does not pass.
"""

import math
import re
from dataclasses import dataclass

from agentgym.envs.code.answers import blocks_of, is_of
from agentgym.messages import Message, merged
from agentgym.rewards.rubric import Score
from agentgym.trajectory import RolloutOutput

_TAG = re.compile(r"</?(?:think|answer)>")
_FORM = ["<think>", "</think>", "<answer>", "</answer>"]
_ACTION = re.compile(r"Action:[ \t]*(\S[^\n]*)\nAction Input:[ \t]*(\S.*)", re.DOTALL)
_AGAIN = re.compile(r"^(?:Thought|Action|Action Input|Observation|Final Answer):", re.MULTILINE)
_UNSPACED = (
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Scripts without blanks between words: Thai, Lao, Tibetan, Burmese, Khmer, Japanese, Chinese."""
_UNIT = re.compile(f"[{_UNSPACED}]|[^\\s{_UNSPACED}]+")


def think_answer(text: str) -> tuple[str, str] | None:
    """Thoughts and answer of `<think>...</think>` and `<answer>...</answer>`, stripped.

    Each tag comes exactly once, wherever it stands, in this order; around and between the blocks
    there is white space only, and neither is empty. Anything else is `None`.
    """
    if _TAG.findall(text) != _FORM:
        return None
    before, thoughts, between, answer, after = (part.strip() for part in _TAG.split(text))
    if before or between or after or not thoughts or not answer:
        return None
    return thoughts, answer


def react_action(text: str) -> tuple[str, str] | None:
    """Name and input of the one action after `<think>...</think>`; `None` if it has another form.

    A line `Action: NAME`, then `Action Input: ...`, which may go on over several lines; no second
    action, observation or answer follows.
    """
    start, closed, rest = text.strip().partition("</think>")
    thoughts = start.removeprefix("<think>")
    if not closed or thoughts == start or not thoughts.strip() or _TAG.search(thoughts + rest):
        return None
    match = _ACTION.fullmatch(rest.strip())
    if match is None or _AGAIN.search(match[2]):
        return None
    return match[1].strip(), match[2].strip()


def format(output: RolloutOutput) -> Score:
    """1.0 if the last message is thoughts and an answer in their tags (see `think_answer`), else 0.

    The `format` of ms-swift and of open-r1, without what their pattern lets pass; see the module.
    """
    return float(think_answer(_last_words(output)) is not None)


def react_format(output: RolloutOutput) -> Score:
    """1.0 if every message that acts thinks first and then makes one call and no more, else 0.0.

    Messages that were read as calls count by what was read, others by `react_action`; only the last
    one may be without an action, and at least one has one.
    """
    messages = [m for m in merged(output.messages) if m.role == "assistant"]
    acting = [message for message in messages if _acts(message)]
    others = [i for i, message in enumerate(messages) if not _acts(message)]
    fits = all(map(_acts_in_form, acting)) and others in ([], [len(messages) - 1])
    return float(bool(acting) and fits)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeFormat:
    """1.0 if the answer of `format` holds a closed fenced block of a language, else 0.0.

    The `external_code_format` of ms-swift and `code_format` of open-r1.
    """

    language: str = "python"
    """A block without a name counts as well."""

    def __call__(self, output: RolloutOutput) -> Score:
        parts = think_answer(_last_words(output))
        return float(
            parts is not None and any(is_of(b, self.language) for b in blocks_of(parts[1]))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftOverlong:
    """0.0 up to `max_tokens - cache_tokens` sampled tokens, then down to -1.0 at `max_tokens`.

    max(-1, min(0, (max_tokens - cache_tokens - L) / cache_tokens)): equation 13 of DAPO
    (arXiv:2503.14476), for the L tokens of the whole trajectory.
    """

    max_tokens: int = 1024
    cache_tokens: int = 256

    def __call__(self, output: RolloutOutput) -> Score:
        room = self.max_tokens - self.cache_tokens - num_sampled(output)
        return max(-1.0, min(0.0, room / self.cache_tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cosine:
    """Right answers are worth more if they are short, wrong ones cost less if they are long.

    end + (start - end) (1 + cos(pi L / max_tokens)) / 2 for L sampled tokens, at most `max_tokens`:
    the cosine reward of Yeo et al. (arXiv:2502.03373). Unscored where nothing says what is right.
    """

    max_tokens: int = 1024
    right: tuple[float, float] = (1.0, 0.5)
    """At no tokens and at `max_tokens`."""
    wrong: tuple[float, float] = (-0.5, 0.0)
    column: str | None = None
    """The env's reward that says whether it is right: at least 1.0; all of them if left out."""

    def __call__(self, output: RolloutOutput) -> Score:
        told = output.reward if self.column is None else output.rewards.get(self.column)
        if told is None:
            return None
        start, end = self.right if told >= 1.0 - 1e-6 else self.wrong
        share = min(1.0, num_sampled(output) / self.max_tokens)
        return end + (start - end) * (1 + math.cos(math.pi * share)) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """-max_penalty x (1 - distinct / all n-grams) of what was said; 0.0 if there is no n-gram.

    Words, in small letters; of scripts without blanks between them, characters. From Yeo et al.
    (arXiv:2502.03373), over all messages of the policy, none of which runs into the next.
    """

    size: int = 3
    max_penalty: float = 1.0

    def __call__(self, output: RolloutOutput) -> Score:
        said = [_words_of(m) for m in merged(output.messages) if m.role == "assistant"]
        grams = [gram for text in said for gram in self._grams(text)]
        return -self.max_penalty * (1 - len(set(grams)) / len(grams)) if grams else 0.0

    def _grams(self, text: str) -> list[tuple[str, ...]]:
        units = _UNIT.findall(text.lower())
        return list(zip(*(units[i:] for i in range(self.size)), strict=False))


code_format = CodeFormat()
soft_overlong = SoftOverlong()
cosine = Cosine()
repetition = Repetition()


def num_sampled(output: RolloutOutput) -> int:
    """Tokens of the policy, over all turns and traces, each once."""
    return sum(len(segment.ids) for segment in output.spoken)


def _last_words(output: RolloutOutput) -> str:
    messages = [m for m in merged(output.messages) if m.role == "assistant"]
    return _words_of(messages[-1]) if messages else ""


def _words_of(message: Message) -> str:
    """As it was said: reasoning that was read out of it stands in its tags again."""
    if message.reasoning is None:
        return message.content
    return f"<think>{message.reasoning}</think>{message.content}"


def _acts(message: Message) -> bool:
    return bool(message.tool_calls or message.malformed_calls) or "Action:" in message.content


def _acts_in_form(message: Message) -> bool:
    if not (message.tool_calls or message.malformed_calls):
        return react_action(_words_of(message)) is not None
    is_one_call = len(message.tool_calls) == 1 and not message.malformed_calls
    return is_one_call and bool((message.reasoning or "").strip()) and not message.content.strip()
