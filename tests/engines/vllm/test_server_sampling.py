"""What vLLM is asked for is what the turn asks for, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.constraint import Constraint
from agentgym.engines.base import Sampling
from agentgym.engines.vllm.sampling import sampling_fields
from agentgym.errors import ConfigError


def test_only_stop_ids_of_the_turn_end_it_and_nothing_shifts_the_distribution() -> None:
    """`min_tokens` masks stop tokens, and so would move the logprobs that are trained on."""
    turn = Sampling(max_tokens=9, seed=1, stop_token_ids=frozenset({7, 3, 900}), stop=("ab",))
    fields = sampling_fields(turn, max_tokens=5, vocabulary=64)

    assert (fields["max_tokens"], fields["stop_token_ids"]) == (5, [3, 7])
    assert fields["ignore_eos"] is True
    assert (fields["stop"], fields["include_stop_str_in_output"]) == (["ab"], True)
    assert (fields["detokenize"], fields["skip_special_tokens"]) == (True, False)
    assert "min_tokens" not in fields


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_seeds_stay_apart(one: int, other: int) -> None:
    """vLLM takes 64 bits and reads -1 as no seed; a CPU's generator takes the lower 32 of them."""
    seeds = [_seed(one), _seed(other), _seed(one ^ 1 << 40)]

    assert all(0 <= seed < 2**63 for seed in seeds)
    assert (seeds[0] == seeds[1]) == (one == other)
    assert seeds[0] % 2**32 != seeds[2] % 2**32
    assert _seed(-1) >= 0


@pytest.mark.parametrize("temperature", [0.0, 0.01, 2.0])
def test_temperatures_that_vllm_samples_with_pass(temperature: float) -> None:
    turn = Sampling(max_tokens=1, seed=0, temperature=temperature)

    assert sampling_fields(turn, max_tokens=1)["temperature"] == temperature


@pytest.mark.parametrize("temperature", [0.001, 2.1])
def test_temperatures_that_it_would_change_are_refused(temperature: float) -> None:
    """It raises 0.001 to 0.01, so that the logprobs belong to a distribution nobody asked for."""
    turn = Sampling(max_tokens=1, seed=0, temperature=temperature)

    with pytest.raises(ConfigError, match=f"temperature={temperature}"):
        sampling_fields(turn, max_tokens=1)


def test_a_constraint_is_a_structured_output() -> None:
    schema = {"type": "object"}
    turns = [Constraint(regex="a+"), Constraint(json_schema=schema)]
    fields = [
        sampling_fields(Sampling(max_tokens=1, seed=0, constraint=constraint), max_tokens=1)
        for constraint in turns
    ]

    assert [field["structured_outputs"] for field in fields] == [{"regex": "a+"}, {"json": schema}]


def _seed(seed: int) -> int:
    seed = sampling_fields(Sampling(max_tokens=1, seed=seed), max_tokens=1)["seed"]
    assert isinstance(seed, int)
    return seed
