"""Rebuilds the embedded policy from nothing: `python -m agentgym.trainer.tiny_policy.warm_start`.

Two phases of supervised training on demonstrations made on the fly. The clean one is long, so that
the skill is there; the noisy one is short and mostly buries it under a bad habit, so that there is
something to learn. Muon on the matrices is what makes minutes enough.
"""

import argparse
import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from agentgym.envs.calculator import CalculatorEnv
from agentgym.trainer.tiny_policy import PATH
from agentgym.trainer.tiny_policy.corpus import Corpus, Demonstration
from agentgym.trainer.tiny_policy.demonstrations import CLEAN, NOISY
from agentgym.trainer.tiny_policy.model import build_model
from agentgym.trainer.tiny_policy.tokenizer import build_tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How long and how fast."""

    clean_batches: int = 1000
    noisy_batches: int = 200
    batch_size: int = 16
    """Conversations."""
    muon_learning_rate: float = 0.024
    adamw_learning_rate: float = 0.008
    warmup_batches: int = 40
    clean_end: float = 0.3
    """Share of the peak learning rate left when the noisy phase begins; it ends at zero."""
    tokenizer_conversations: int = 2000
    """What the tokenizer is trained on."""
    seed: int = 0

    @property
    def num_batches(self) -> int:
        return self.clean_batches + self.noisy_batches

    def rate(self, batch: int) -> float:
        """Learning rate of batch number `batch` as a share of the peak."""
        warmup = min(1.0, (batch + 1) / self.warmup_batches)
        if batch < self.clean_batches:
            return warmup * (1 - (1 - self.clean_end) * batch / self.clean_batches)
        return self.clean_end * (self.num_batches - batch) / self.noisy_batches


async def warm_start(out: Path, recipe: Recipe) -> Qwen3ForCausalLM:
    """Train tokenizer and model and save both into `out`; the same recipe gives the same files."""
    corpus = Corpus(CalculatorEnv(), seed=recipe.seed)
    tokenizer = build_tokenizer(
        await corpus.texts(recipe.tokenizer_conversations),
        chat_template=PATH / "chat_template.jinja",
    )
    model = build_model(tokenizer, seed=recipe.seed)
    await _train(model, corpus, tokenizer, recipe)
    tokenizer.save_pretrained(out)
    model.save_pretrained(out)
    return model


async def _train(
    model: Qwen3ForCausalLM, corpus: Corpus, tokenizer: PreTrainedTokenizerFast, recipe: Recipe
) -> None:
    optimizers = _optimizers(model, recipe)
    started = time.perf_counter()
    for batch in range(recipe.num_batches):
        habits = CLEAN if batch < recipe.clean_batches else NOISY
        first = batch * recipe.batch_size
        numbers = range(first, first + recipe.batch_size)
        demonstrations = await corpus.encode(tokenizer, numbers, habits)
        loss = _backward(model, demonstrations)
        _step(optimizers, recipe.rate(batch))
        if batch % 100 == 0 or batch == recipe.num_batches - 1:
            seconds = time.perf_counter() - started
            print(f"batch {batch:5d}  loss {loss:.4f}  {seconds:6.1f} s", flush=True)


def _backward(model: Qwen3ForCausalLM, demonstrations: list[Demonstration]) -> float:
    """Gradient and value of the mean loss per assistant token, short and long ones apart."""
    ordered = sorted(demonstrations, key=lambda d: len(d.ids))
    num_tokens = sum(int(d.mask[1:].sum()) for d in ordered)
    total = 0.0
    for half in (ordered[: len(ordered) // 2], ordered[len(ordered) // 2 :]):
        ids = pad_sequence([d.ids for d in half], batch_first=True)
        mask = pad_sequence([d.mask for d in half], batch_first=True)[:, 1:]
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
        logits = model.lm_head(hidden[mask])
        loss = cross_entropy(logits, ids[:, 1:][mask], reduction="sum") / num_tokens
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.item()
    return total


Rated = tuple[torch.optim.Optimizer, float]
"""An optimizer and its peak learning rate."""


def _optimizers(model: Qwen3ForCausalLM, recipe: Recipe) -> list[Rated]:
    """Muon for the matrices of the layers, AdamW for embeddings and norms."""
    matrices = [p for p in model.model.layers.parameters() if p.ndim == 2]
    chosen = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in chosen]
    muon = torch.optim.Muon(matrices, lr=recipe.muon_learning_rate, momentum=0.9, weight_decay=0.0)
    adamw = torch.optim.AdamW(
        rest, lr=recipe.adamw_learning_rate, betas=(0.9, 0.99), weight_decay=0.0
    )
    return [(muon, recipe.muon_learning_rate), (adamw, recipe.adamw_learning_rate)]


def _step(optimizers: list[Rated], rate: float) -> None:
    for optimizer, peak in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = peak * rate
        optimizer.step()
        optimizer.zero_grad()


def main() -> None:
    parser = argparse.ArgumentParser(description="Rebuild the embedded policy from nothing.")
    parser.add_argument("out", nargs="?", type=Path, default=PATH, help="folder to write")
    asyncio.run(warm_start(parser.parse_args().out, Recipe()))


if __name__ == "__main__":
    main()
