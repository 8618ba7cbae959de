"""What is read of a model before any of it is loaded."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentgym.engines.loading import made_for, refuse_long_context, refuse_missing_folder
from agentgym.errors import ConfigError

SLIDING: dict[str, Any] = {"sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}


@pytest.mark.parametrize(
    ("config", "limit"),
    [
        ({"max_position_embeddings": 64}, 64),
        ({"max_position_embeddings": 64, "rope_scaling": None}, 64),
        ({"max_position_embeddings": 64, "rope_parameters": SLIDING}, 64),
        ({"text_config": None, "max_position_embeddings": 64}, 64),
        ({"text_config": {"max_position_embeddings": 64}}, 64),
        ({"text_config": {"model_type": "llama"}}, None),
        ({"n_positions": 64}, None),
        ([], None),
        ({"max_position_embeddings": 64, "rope_scaling": {"type": "yarn", "factor": 4.0}}, None),
        ({"max_position_embeddings": 64, "rope_scaling": {"factor": 4.0}}, None),
        ({"max_position_embeddings": 64, "rope_scaling": "none"}, 64),
        (
            {
                "max_position_embeddings": 64,
                "rope_parameters": SLIDING
                | {"full_attention": {"rope_type": "linear", "factor": 8.0}},
            },
            None,
        ),
        ({"max_position_embeddings": 64, "model_max_length": 512}, None),
    ],
)
def test_a_limit_is_known_only_where_nothing_else_may_raise_it(
    tmp_path: Path, config: Any, limit: int | None
) -> None:
    """What vLLM takes must never be refused; what it does not take it refuses by itself."""
    (tmp_path / "config.json").write_text(json.dumps(config))

    assert made_for(str(tmp_path)) == limit


def test_more_context_than_a_model_was_made_for_is_vllms_to_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 64}')
    refuse_long_context(str(tmp_path), 64)
    with pytest.raises(ConfigError, match="--max-context 65 is more than the 64 tokens"):
        refuse_long_context(str(tmp_path), 65)

    monkeypatch.setenv("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "1")
    refuse_long_context(str(tmp_path), 65)


def test_a_configuration_that_is_cut_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"max_position_emb')
    with pytest.raises(ConfigError, match="cannot load a configuration from"):
        made_for(str(tmp_path))


def test_models_and_tokenizers_have_files_of_several_names(tmp_path: Path) -> None:
    """Mistral's own format has `params.json`, a tokenizer alone may be one file."""
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ConfigError, match="holds no model"):
        refuse_missing_folder(str(tmp_path))

    (tmp_path / "params.json").touch()
    refuse_missing_folder(str(tmp_path))
