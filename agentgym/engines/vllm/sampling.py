"""How a turn is sampled, in vLLM's words; the same for a server and for vLLM in this process.

Only what is asked for decides: vLLM's own end-of-sequence token ends no turn, and no field is used
that would change the distribution behind the log-probabilities (`min_tokens` forbids stop tokens).
"""

from collections.abc import Mapping
from typing import Any

from agentgym.constraint import Constraint
from agentgym.engines.base import Sampling
from agentgym.errors import ConfigError

_LOWEST_TEMPERATURE = 0.01
_HIGHEST_TEMPERATURE = 2.0


def sampling_fields(
    sampling: Sampling, *, max_tokens: int, vocabulary: int | None = None
) -> dict[str, Any]:
    """Fields of `vllm.SamplingParams`; `structured_outputs` are those of its own class.

    Args:
        sampling: what the turn asks for.
        max_tokens: what of it fits into the context.
        vocabulary: of the model; stop tokens beyond it, which vLLM refuses, are left out.

    Raises:
        ConfigError: vLLM would silently sample at another temperature, or not at all.
    """
    _refuse_temperature(sampling.temperature)
    fields: dict[str, Any] = {
        "max_tokens": max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "seed": _folded(sampling.seed),
        "logprobs": 0,
        "stop_token_ids": [
            token
            for token in sorted(sampling.stop_token_ids)
            if vocabulary is None or token < vocabulary
        ],
        "ignore_eos": sampling.constraint is None,
        "detokenize": bool(sampling.stop),
        "skip_special_tokens": False,
    }
    if sampling.stop:
        fields |= {"stop": list(sampling.stop), "include_stop_str_in_output": True}
    if sampling.constraint is not None:
        fields["structured_outputs"] = _structured(sampling.constraint)
    return fields


def _refuse_temperature(temperature: float) -> None:
    if temperature == 0 or _LOWEST_TEMPERATURE <= temperature <= _HIGHEST_TEMPERATURE:
        return
    raise ConfigError(
        f"temperature={temperature:g}: vLLM samples with 0 or with {_LOWEST_TEMPERATURE} to "
        f"{_HIGHEST_TEMPERATURE:g}"
    )


def _folded(seed: int) -> int:
    """[0, 2**63) one to one there; all bits count, also where a generator takes the lower 32."""
    bits = seed % 2**63
    return bits ^ bits >> 32


def _structured(constraint: Constraint) -> Mapping[str, Any]:
    if constraint.regex is not None:
        return {"regex": constraint.regex}
    return {"json": constraint.json_schema}
