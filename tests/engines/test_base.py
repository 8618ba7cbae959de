"""Settings that no engine could sample with are refused where they are made."""

import pytest

from agentgym.engines.base import Sampling
from agentgym.errors import ConfigError


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
