"""A model's tokenizer and weights from a folder or a hub, with errors of one line."""

import json
import os
from pathlib import Path
from typing import Any

from agentgym.errors import ConfigError


def load_tokenizer(
    model: str, *, revision: str | None = None, trust_remote_code: bool = False
) -> Any:
    """The tokenizer of a model, a `PreTrainedTokenizerBase` that pads on the left.

    Args:
        model: folder or hub id.
        revision: branch, tag or commit on the hub; by default its main branch.
        trust_remote_code: run code that comes with the model.

    Raises:
        ConfigError: there is none.
    """
    refuse_missing_folder(model)
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(
            model,
            padding_side="left",
            revision=revision or "main",
            trust_remote_code=trust_remote_code,
        )
    except (OSError, ValueError) as error:
        raise _refusal("tokenizer", model, error) from error


def load_model(model: str, dtype: str) -> Any:
    """A causal language model for sampling, a `PreTrainedModel`, on the GPU if there is one.

    Args:
        model: folder or hub id.
        dtype: of the weights, `auto` = as they are stored.

    Raises:
        ConfigError: it cannot be loaded.
    """
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(model, dtype=dtype, device_map=device)
    except (OSError, ValueError) as error:
        raise _refusal("model", model, error) from error
    return loaded.eval()


def stored_dtype(model: str) -> str | None:
    """What a model says its weights are in, as in `torch.float32`, without the `torch.`.

    Args:
        model: folder or hub id.

    Raises:
        ConfigError: there is no such model.
    """
    config = _config_of(model)
    found = config.get("dtype") or config.get("torch_dtype")
    return None if found is None else str(found)


def made_for(model: str) -> int | None:
    """Tokens of context that a model was made for; `None` if it says nothing, or more than that.

    Args:
        model: folder or hub id.

    Raises:
        ConfigError: there is no such model.
    """
    whole = _config_of(model)
    nested = whole.get("text_config")
    config = nested if isinstance(nested, dict) else whole
    ropes = [config.get("rope_parameters"), config.get("rope_scaling")]
    if any("model_max_length" in each for each in (whole, config)) or any(map(_stretches, ropes)):
        return None
    limit = config.get("max_position_embeddings")
    return limit if isinstance(limit, int) and limit > 0 else None


def _stretches(rope: object) -> bool:
    """Whether positions go further than they were learned, in one kind of layer at least."""
    if not isinstance(rope, dict):
        return False
    kind = rope.get("rope_type", rope.get("type", "default"))
    return kind != "default" or "factor" in rope or any(map(_stretches, rope.values()))


def refuse_long_context(model: str, tokens: int | None) -> None:
    """Raise a `ConfigError` if that is more context than a model was made for, and vLLM minds."""
    if os.environ.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "0") != "0":
        return
    limit = None if tokens is None else made_for(model)
    if tokens is not None and limit is not None and tokens > limit:
        raise ConfigError(
            f"--max-context {tokens} is more than the {limit} tokens that {model!r} was made for: "
            "lower it, or leave it out"
        )


def _config_of(model: str) -> dict[str, Any]:
    """What `config.json` says; nothing, of a folder without one."""
    path = Path(model) / "config.json"
    if Path(model).is_dir() and not path.is_file():
        return {}
    try:
        if path.is_file():
            return dict(json.loads(path.read_text(encoding="utf-8")))
        from transformers import PreTrainedConfig

        return dict(PreTrainedConfig.get_config_dict(model)[0])
    except (OSError, ValueError, TypeError) as error:
        raise _refusal("configuration", model, error) from error


def _refusal(what: str, model: str, error: Exception) -> ConfigError:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    return ConfigError(f"cannot load a {what} from {model!r}: {reason}")


def refuse_missing_folder(model: str) -> None:
    """Raise a `ConfigError` if `model` is a folder without a model, or can only be one and is none.

    No hub needs be asked for that.
    """
    if Path(model).is_dir() and not any(Path(model).glob("*.json")):
        raise ConfigError(f"the folder {model!r} holds no model: there is no config.json in it")
    looks_like_path = model.startswith((".", "/", "~")) or model.count("/") > 1 or not model
    if looks_like_path and not Path(model).is_dir():
        raise ConfigError(f"the model folder {model!r} does not exist")
