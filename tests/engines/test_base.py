"""What no engine could sample with, or have sampled, is refused where it is made."""

import pytest

from agentgym.engines.base import Generation, Sampling, refuse_unknown_ids
from agentgym.errors import ConfigError, EngineError


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("max_tokens", 0),
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("top_p", 0.0),
        ("top_p", 1.5),
        ("top_k", -1),
    ],
)
def test_a_setting_out_of_range_is_named(setting: str, value: float) -> None:
    """Otherwise it surfaces deep inside a sampler, as a NaN or an index error."""
    settings = {"max_tokens": 1, "temperature": 1.0, "top_p": 1.0, "top_k": 0, setting: value}

    with pytest.raises(ConfigError, match=f"{setting}={value}"):
        Sampling(
            seed=0,
            max_tokens=int(settings["max_tokens"]),
            temperature=settings["temperature"],
            top_p=settings["top_p"],
            top_k=int(settings["top_k"]),
        )


def test_an_empty_stop_string_is_refused() -> None:
    """It would end every turn after its first token."""
    with pytest.raises(ConfigError, match="stop strings that are not empty"):
        Sampling(max_tokens=1, seed=0, stop=("x", ""))


@pytest.mark.parametrize(
    ("ids", "logprobs", "message"),
    [
        ((1, 2), (-0.5,), "2 tokens needs 2 logprobs, got 1"),
        ((1, -1), (-0.5, -0.5), "token id -1"),
        ((1, 2), (-0.5, 0.1), "0.1 as the logprob"),
        ((1, 2), (-0.5, float("nan")), "nan as the logprob"),
        ((1, 2), (-0.5, float("-inf")), "-inf as the logprob"),
    ],
)
def test_a_turn_that_nothing_can_have_sampled_is_the_engine_s_error(
    ids: tuple[int, ...], logprobs: tuple[float, ...], message: str
) -> None:
    """A positive logprob would become an importance ratio that clips nothing."""
    with pytest.raises(EngineError, match=message):
        Generation(token_ids=ids, logprobs=logprobs, finish_reason="length", policy_version=0)


def test_a_probability_of_one_may_be_rounded_up() -> None:
    turn = Generation(token_ids=(1,), logprobs=(1e-6,), finish_reason="stop", policy_version=0)

    assert turn.logprobs == (1e-6,)


@pytest.mark.parametrize(("ids", "wrong"), [((0, 8), 8), ((-1, 3), -1)])
def test_ids_outside_the_vocabulary_are_named(ids: tuple[int, ...], wrong: int) -> None:
    with pytest.raises(EngineError, match=f"it holds token id {wrong}; the model knows 0 to 7"):
        refuse_unknown_ids("it", ids, 8)
    refuse_unknown_ids("it", (0, 7), 8)
    refuse_unknown_ids("it", (), 8)
