"""The policy that ships with the package: what is trained when no model is named.

A Qwen3 of 0.63 M parameters that has seen imperfect demonstrations, so that it starts far from
solved and learns in minutes on a laptop. This module does not import torch, so that the command
line can name the path at once; `warm_start` rebuilds the files from nothing.
"""

from pathlib import Path

PATH = Path(__file__).parent / "files"
"""A model folder for `AutoModelForCausalLM.from_pretrained` and `AutoTokenizer.from_pretrained`."""
