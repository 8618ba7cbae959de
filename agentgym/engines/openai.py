"""Any server that speaks OpenAI's API, as an engine for looking, never for training.

Such servers take and give text. Here the prompt's ids are decoded, or the conversation is handed
over as it is, and the answer is encoded with a tokenizer of ours: the loop runs as with any other
engine, but these ids are not known to be those that were sampled, and their log-probabilities are
not known at all. So the trainer refuses this engine.
"""

import json
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agentgym.constraint import ConstraintError
from agentgym.engines.base import FinishReason, Generation, Sampling, TextOnlyEngine
from agentgym.engines.http import FailedCallError, JsonClient, Patience, RefusedError
from agentgym.engines.promises import (
    constraint_fields,
    is_about_a_constraint,
    refuse_broken_promise,
)
from agentgym.engines.stops import Decode
from agentgym.engines.weights import Weights
from agentgym.errors import ConfigError, EngineError

_log = logging.getLogger(__name__)
UNKNOWN_CONTEXT = 1 << 17
"""Tokens; an endpoint does not say how many it takes."""
_BAD_REQUEST, _UNPROCESSABLE = 400, 422
_NO_MATTER = {"temperature": 1.0, "top_p": 1.0}
"""Values at which a server may be left to its own default, once it refuses to be told."""
_OTHER_NAMES = {"max_tokens": "max_completion_tokens"}

_CONSTRAINTS = ("response_format", "structured_outputs")
_LEFT_OUT = {
    "seed": "takes no seed: no run can be repeated",
    "skip_special_tokens": "may leave special tokens out of its answers: tool calls may be lost",
    "add_special_tokens": "may begin prompts with a second special token: openai-chat: does not",
}
"""What is not asked for again once it is refused, and what people are told of it."""

_REFUSAL = re.compile(
    r"(?i)unsupported|not supported|unrecognized|unknown|unexpected|not permitted|not allowed|extra"
)

Conversation = Callable[[str], Sequence[Mapping[str, Any]]]
"""What a session's policy is to answer: messages of role and content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where to ask, and for what."""

    url: str
    """Up to and with `/v1`."""
    model: str
    """By the server's name for it."""
    key_variable: str = "OPENAI_API_KEY"
    """Environment variable that holds the key; without one no key is sent."""
    patience: Patience = field(default_factory=Patience)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """Between the server's text and the loop's ids."""

    encode: Callable[[str], Sequence[int]]
    """Special tokens in the text are special tokens."""
    decode: Decode
    stop_token_id: int
    """Ends the turns that the server says have ended."""
    has_special_words: bool = False
    """Whether an answer may hold special tokens that are part of its text, such as those around a
    tool call: servers are asked not to leave them out, which is no setting of OpenAI's own."""
    has_special_start: bool = False
    """Whether prompts begin with a special token that servers would add once more."""


@dataclass(slots=True)
class Usage:
    """What an endpoint says it has done."""

    requests: int = 0
    """Answered."""
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def add(self, reply: Any) -> None:
        """Count an answer; one that says nothing of tokens counts none."""
        told = reply.get("usage") if isinstance(reply, Mapping) else None
        usage = told if isinstance(told, Mapping) else {}
        self.requests += 1
        self.prompt_tokens += _count(usage.get("prompt_tokens"))
        self.completion_tokens += _count(usage.get("completion_tokens"))


def _count(told: Any) -> int:
    """An answer is not worth less because its server cannot count."""
    return told if isinstance(told, int) and told > 0 else 0


class _Answer(NamedTuple):
    text: str
    finish_reason: FinishReason


class OpenAIEngine(TextOnlyEngine):
    """Asks `/completions`, or `/chat/completions` if it is told what the conversation is.

    A server that does not say which stop string ended a turn (`stop_reason`, as vLLM does) is taken
    to have ended it by a stop token.

    A turn's JSON schema is asked for as `response_format`, its regex as vLLM's
    `structured_outputs`; an answer that shows that the server ignored it is an error.

    Args:
        endpoint: server and model.
        wording: tokenizer of the loop.
        conversation: messages of a session; without it the prompt's text is completed.
        max_context: longest prompt plus completion, in tokens.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        wording: Wording,
        *,
        conversation: Conversation | None = None,
        max_context: int = UNKNOWN_CONTEXT,
    ) -> None:
        token = os.environ.get(endpoint.key_variable)
        self._client = JsonClient(endpoint.url, token=token, patience=endpoint.patience)
        self._endpoint = endpoint
        self._wording = wording
        self._conversation = conversation
        self._max_context = max_context
        self._is_closed = False
        self._renamed: dict[str, str | None] = {}
        """Settings that the endpoint wants under another name, or (`None`) not at all."""
        self.usage = Usage()
        """Of all turns so far."""

    @property
    def max_context(self) -> int:
        """Longest prompt plus completion, in tokens."""
        return self._max_context

    @property
    def policy_version(self) -> int:
        """Always 0: the weights are the server's."""
        return 0

    async def generate(
        self, prompt_ids: tuple[int, ...], sampling: Sampling, *, session: str
    ) -> Generation:
        """One turn; every logprob is 0.

        Raises:
            ConfigError: the server does not know the key, the path or the model.
            ConstraintError: it does not take the turn's constraint.
            EngineError: it gave no usable answer, or one that breaks the constraint, or the engine
                is closed.
        """
        if self._is_closed:
            raise EngineError("the engine is closed")
        limit = min(sampling.max_tokens, self._max_context - len(prompt_ids))
        if limit < 1:
            raise EngineError(
                f"a prompt of {len(prompt_ids)} tokens leaves no room in a context of "
                f"{self._max_context}"
            )
        body = self._settings(sampling, limit)
        if self._conversation is None:
            path, body["prompt"] = "/completions", self._wording.decode(prompt_ids)
            if self._wording.has_special_start:
                body["add_special_tokens"] = False
        else:
            path, body["messages"] = "/chat/completions", list(self._conversation(session))
        reply = await self._ask(path, body)
        self.usage.add(reply)
        answer = _read(reply, sampling)
        if sampling.constraint is not None and answer.finish_reason == "stop":
            refuse_broken_promise(sampling.constraint, answer.text)
        return self._encoded(answer, limit)

    def release(self, session: str) -> None:
        """Nothing is kept between turns."""

    async def update_weights(self, weights: Weights | None = None) -> int:
        """The server's weights are not ours to change."""
        return 0

    async def aclose(self) -> None:
        """Close the connections; idempotent."""
        self._is_closed = True
        await self._client.aclose()

    async def _ask(self, path: str, body: Mapping[str, Any]) -> Any:
        """The reply; a setting that the endpoint does not know is left out where that is fine."""
        while True:
            renamed = {name: self._renamed.get(name, name) for name in body}
            sent = {new: body[name] for name, new in renamed.items() if new is not None}
            try:
                return await self._client.post(path, sent)
            except RefusedError as error:
                raise self._explained(error) from error
            except FailedCallError as error:
                if error.status not in (_BAD_REQUEST, _UNPROCESSABLE):
                    raise
                self._do_without(error, sent)

    def _do_without(self, error: FailedCallError, sent: Mapping[str, Any]) -> None:
        """Remember what the endpoint refuses.

        Raises:
            ConfigError: it refuses a setting that makes a difference.
            ConstraintError: it refuses the turn's constraint.
            EngineError: something else is wrong.
        """
        name = _refused_setting(error.text, sent)
        asked = next((name for name in _CONSTRAINTS if name in sent), None)
        is_its_fault = name == asked or (name is None and is_about_a_constraint(error.said))
        if asked is not None and is_its_fault:
            raise ConstraintError(
                f"{self._client.url} does not take {asked}={str(sent[asked])[:200]}: {error.said}"
            ) from error
        if name is None:
            raise error
        is_news = name not in self._renamed  # turns at the same time hear of it, too
        if name in _OTHER_NAMES:
            self._renamed[name] = _OTHER_NAMES[name]
        elif name in _LEFT_OUT or _NO_MATTER.get(name) == sent[name]:
            self._renamed[name] = None
            if name in _LEFT_OUT and is_news:
                _log.warning("%s %s", self._client.url, _LEFT_OUT[name])
        else:
            raise ConfigError(
                f"{self._client.url} does not take {name}={sent[name]!r}: {error}"
            ) from error

    def _explained(self, error: RefusedError) -> ConfigError:
        """Who must do what about a key or a name that is not known."""
        variable, model = self._endpoint.key_variable, self._endpoint.model
        if error.status in (401, 403):
            has = "was refused" if os.environ.get(variable) else "is needed, and not set"
            return ConfigError(f"the key in the environment variable {variable} {has}: {error}")
        return ConfigError(
            f"there is no model {model!r}, or no such path (the URL goes up to and with /v1): "
            f"{error}"
        )

    def _settings(self, sampling: Sampling, limit: int) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._endpoint.model,
            "max_tokens": limit,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": sampling.seed % 2**31,
        }
        if sampling.top_k:
            body["top_k"] = sampling.top_k
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        if self._wording.has_special_words:
            body["skip_special_tokens"] = False
        if sampling.constraint is not None:
            body |= constraint_fields(sampling.constraint)
        return body

    def _encoded(self, answer: _Answer, limit: int) -> Generation:
        ids = list(self._wording.encode(answer.text))
        if answer.finish_reason == "stop":
            ids.append(self._wording.stop_token_id)
        if not ids:
            raise EngineError("the endpoint gave an empty answer that it calls cut by length")
        return Generation(
            token_ids=tuple(ids[:limit]),
            logprobs=(0.0,) * min(len(ids), limit),
            finish_reason=answer.finish_reason if len(ids) <= limit else "length",
            policy_version=0,
        )


def _refused_setting(text: str, sent: Mapping[str, Any]) -> str | None:
    """The setting that a server's complaint is about: its `param`, or the one it mentions first."""
    settings = ("max_tokens", "temperature", "top_p", "top_k", "stop")
    optional = (*settings, *_LEFT_OUT, *_CONSTRAINTS)
    try:
        param = json.loads(text)["error"]["param"]
    except (ValueError, KeyError, TypeError):
        param = None
    if param in optional:
        return str(param) if param in sent else None
    found = {name: _place(name, text) for name in optional if name in sent}
    mentioned = [name for name, place in found.items() if place is not None]
    is_refusal = _REFUSAL.search(text) is not None
    return min(mentioned, key=lambda name: found[name] or 0) if mentioned and is_refusal else None


def _place(name: str, text: str) -> int | None:
    match = re.search(rf"\b{name}\b", text)
    return match and match.start()


def _read(reply: Any, sampling: Sampling) -> _Answer:
    """The first choice of a reply of either kind.

    Raises:
        EngineError: there is none, or it is no text.
    """
    try:
        choice = reply["choices"][0]
        message = choice.get("message")
        text = choice["text"] if message is None else _spoken(message)
        reason, ended_by = choice.get("finish_reason"), choice.get("stop_reason")
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise EngineError(f"the endpoint's reply holds no answer: {str(reply)[:200]}") from error
    if not isinstance(text, str) or reason not in ("stop", "length", None):
        raise EngineError(f"the endpoint ended an answer with {reason!r}: {str(text)[:200]}")
    if ended_by in sampling.stop:
        return _Answer(text if text.endswith(ended_by) else text + ended_by, "stop_string")
    return _Answer(text, "length" if reason == "length" else "stop")


def _spoken(message: Mapping[str, Any]) -> Any:
    """Content after the reasoning that a server has cut out of it."""
    thought = message.get("reasoning_content") or message.get("reasoning")
    content = message.get("content")
    return f"<think>\n{thought}\n</think>\n\n{content or ''}" if thought else content or ""
