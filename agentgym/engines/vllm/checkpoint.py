"""The tensors a served model is made of, from the headers of its checkpoint.

An engine's own parameters are fused, packed and renamed, so what a trainer sends is held against
the checkpoint that the engine was started from. Only headers are read.
"""

import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agentgym.engines.weights import TensorSpec
from agentgym.errors import ConfigError

_NO_WEIGHTS = (".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias", ".position_ids")
"""Constants that old checkpoints hold beside the weights."""
_OTHER_MODELS = ("mtp.",)
"""Drafts for speculative decoding, which a trainer does not have."""
_OUTPUT_LAYERS = ("lm_head.weight", "embed_out.weight")
_DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}


def files_of(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint.

    Raises:
        ConfigError: there is none.
    """
    files = sorted(folder.glob("*.safetensors"))
    whole = [path for path in files if not path.name.startswith("consolidated")]
    if not files:
        raise ConfigError(
            f"the model folder {str(folder)!r} holds no *.safetensors files, so weights sent to it "
            "cannot be held against it: save it with save_pretrained()"
        )
    return whole or files


def read_specs(folder: Path) -> dict[str, TensorSpec]:
    """What a trainer sends for a checkpoint: every weight once, by name.

    Args:
        folder: with `config.json` and safetensors files.

    Raises:
        ConfigError: there are no such files.
    """
    specs = {
        name: spec
        for path in files_of(folder)
        for name, spec in _header(path)
        if not name.endswith(_NO_WEIGHTS) and not name.startswith(_OTHER_MODELS)
    }
    if not _is_tied(folder):
        return specs
    return {name: spec for name, spec in specs.items() if not name.endswith(_OUTPUT_LAYERS)}


def _is_tied(folder: Path) -> bool:
    config: Mapping[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    text: Mapping[str, Any] = config.get("text_config") or {}
    return bool(config.get("tie_word_embeddings", text.get("tie_word_embeddings", False)))


def _header(path: Path) -> Iterator[tuple[str, TensorSpec]]:
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header: dict[str, Any] = json.loads(file.read(length))
    for name, entry in header.items():
        if name != "__metadata__":
            dtype = _DTYPES.get(entry["dtype"], entry["dtype"])
            yield name, TensorSpec(shape=tuple(entry["shape"]), dtype=dtype)
