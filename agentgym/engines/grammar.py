"""Token masks of constrained turns, for engines that sample in this process.

llguidance computes them: it needs no torch, and bounds the work of compiling a grammar and of every
mask, so that no regex or schema can hang a thread. Stop tokens are decided here, not there: they
are those of the request, and allowed exactly where the grammar may end.
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from agentgym.constraint import Constraint, ConstraintError
from agentgym.errors import ConfigError, MissingExtraError, boundary

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_KEPT = 256
"""Compiled grammars."""


class Guide:
    """Where one turn stands in its grammar.

    Args:
        matcher: at its start; the guide's own.
        stop_token_ids: what may end the turn.
        ends: the tokenizer's own end of a sequence, which the matcher takes for an end as well.
        vocabulary: V, width of the logits.
    """

    def __init__(
        self,
        matcher: Any,
        stop_token_ids: Collection[int],
        *,
        ends: Collection[int],
        vocabulary: int,
    ) -> None:
        self._matcher = matcher
        self._ends = [token for token in ends if token < vocabulary]
        self._stops = [token for token in stop_token_ids if token < vocabulary]
        self._vocabulary = vocabulary

    def allowed(self) -> NDArray[np.bool_]:
        """[V] tokens that may come next; none if the grammar has come to a dead end."""
        bias = np.frombuffer(self._matcher.compute_logit_bias(), dtype=np.uint8)
        mask = np.zeros(self._vocabulary, dtype=np.bool_)
        width = min(len(bias), self._vocabulary)
        if not self._matcher.is_stopped():
            mask[:width] = bias[:width] != 0
        mask[self._ends] = False
        mask[self._stops] = self._matcher.is_accepting()
        return mask

    def take(self, token: int) -> None:
        """Go on by a sampled token that ends nothing."""
        self._matcher.consume_token(token)

    def restart(self) -> None:
        """Back to the beginning of the turn."""
        self._matcher.reset()


class Grammars:
    """Compiled grammars over one tokenizer; any thread may ask.

    Args:
        tokenizer: a fast one.
        vocabulary: V, width of the logits.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", vocabulary: int) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._ready: Any = None
        self._matchers: OrderedDict[str, Any] = OrderedDict()
        self._lock = threading.Lock()

    def guide(self, constraint: Constraint, stop_token_ids: Collection[int]) -> Guide:
        """One turn's guide; slow for a constraint that was not asked for lately.

        Raises:
            ConstraintError: llguidance cannot enforce it; says why.
            ConfigError: no stop token could end the turn.
            MissingExtraError: llguidance is not installed.
        """
        if not any(token < self._vocabulary for token in stop_token_ids):
            raise ConfigError("a constrained turn needs a stop token to end with")
        with self._lock:
            matcher, ends = self._matcher(constraint), self._ready.eos_tokens
            return Guide(matcher, stop_token_ids, ends=ends, vocabulary=self._vocabulary)

    def _matcher(self, constraint: Constraint) -> Any:
        key = json.dumps([constraint.regex, constraint.json_schema])
        if key not in self._matchers:
            self._matchers[key] = self._compiled(constraint)
        self._matchers.move_to_end(key)
        while len(self._matchers) > _KEPT:
            self._matchers.popitem(last=False)
        return self._matchers[key].deep_copy()

    def _compiled(self, constraint: Constraint) -> Any:
        try:
            from llguidance import LLMatcher
        except ImportError as error:
            raise MissingExtraError("a constrained turn", "structured") from error
        if self._ready is None:
            self._ready = _read(self._tokenizer, self._vocabulary)
        matcher = LLMatcher(self._ready, _grammar(LLMatcher, constraint), log_level=0)
        if matcher.is_error():
            reason = " ".join(matcher.get_error().split())[:300]
            raise ConstraintError(f"this constraint cannot be enforced: {reason}")
        return matcher


def _read(tokenizer: Any, vocabulary: int) -> Any:
    from llguidance.hf import from_tokenizer

    name = type(tokenizer).__name__
    if tokenizer.eos_token_id is None:
        raise ConfigError(f"turns cannot be constrained with this {name}: it has no eos_token")
    with boundary(ConfigError, f"turns cannot be constrained with this {name}"):
        return from_tokenizer(tokenizer, n_vocab=max(vocabulary, len(tokenizer)))


def _grammar(matcher: Any, constraint: Constraint) -> str:
    """Of JSON, only one way to put spaces: a policy could go on with them for ever."""
    if constraint.regex is not None:
        return str(matcher.grammar_from_regex(constraint.regex))
    compact = {"whitespace_flexible": False}
    return str(matcher.grammar_from_json_schema(constraint.json_schema, overrides=compact))
