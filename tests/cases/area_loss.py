"""Losses of whole steps, masks, and the trainer's log-probabilities beside the engine's."""

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch import Tensor

from agentgym.errors import ConfigError
from agentgym.messages import user
from agentgym.tokens import Segment
from agentgym.trainer.config import AgentGRPOConfig
from agentgym.trainer.corrections import CorrectionSettings, Opinions, correct
from agentgym.trainer.episodes import Episode
from agentgym.trainer.losses import FlatTokens, LossSettings, Normalizer, policy_loss
from agentgym.trainer.metrics import StepMetrics, window_metrics
from agentgym.trainer.ranks import Ranks
from agentgym.trainer.selection import selected_logprobs
from agentgym.trainer.window import PlanSettings, is_trained, make_window
from agentgym.trajectory import RolloutOutput, StopReason

LOSS_TYPES = {"token": "dapo", "sequence": "grpo", "constant": "dr_grpo"}
LIMITS = ("top_p", "top_k", "min_p")
Rows = Sequence[Sequence[float]]


def run(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """Whatever the input gives enough to compute."""
    if "trajectories" in case:
        return _truncated(case)
    if "per_token_loss" in case:
        return _reduced(case)
    if "engine_logp" in case:
        return _mismatch(case)
    if "logits" in case or "probs" in case:
        return _scored(case)
    return _clipped(case)


def _reduced(case: Mapping[str, Any]) -> dict[str, Any]:
    rows = _trained(case["per_token_loss"], case.get("loss_mask"))
    limit = case.get("max_completion_length", 10)
    whole = {name: _loss(rows, [range(len(rows))], name, limit) for name in LOSS_TYPES}
    found: dict[str, Any] = {f"loss_{name}": loss for name, loss in whole.items()}
    if "aggregation" in case or "micro_batches" in case:
        name = case.get("aggregation", "token")
        found["loss"] = _loss(rows, case.get("micro_batches", [range(len(rows))]), name, limit)
        found["same_for_one_micro_batch"] = math.isclose(
            found["loss"], whole[name], rel_tol=1e-6, abs_tol=1e-9
        )
    return found


def _trained(rows: Sequence[Any], masks: Sequence[Any] | None) -> Rows:
    """Of each sequence what its mask leaves; a single sequence may come without its brackets."""
    losses = _matrix(rows)
    mask = _mask(masks, rows)
    return [row[own].tolist() for row, own in zip(losses, mask, strict=True)]


def _loss(
    rows: Rows,
    micro_batches: Sequence[Sequence[int]],
    aggregation: str,
    limit: int,
) -> float:
    """Of a step made of these micro-batches; on policy a token's loss is minus its advantage."""
    settings = LossSettings(LOSS_TYPES[aggregation], max_completion_tokens=limit)
    normalizer = Normalizer(sum(map(len, rows)), sum(1 for row in rows if row))
    parts = [_tokens([rows[index] for index in batch]) for batch in micro_batches]
    losses = [policy_loss(tokens, settings, normalizer).loss for tokens in parts]
    return float(torch.stack(losses).sum())


def _tokens(rows: Rows) -> FlatTokens:
    values = torch.tensor([value for row in rows for value in row])
    ids = [index for index, row in enumerate(rows) for _ in row]
    logprobs = torch.zeros_like(values)
    return FlatTokens(logprobs, logprobs, -values, torch.tensor(ids, dtype=torch.int64))


def _clipped(case: Mapping[str, Any]) -> dict[str, Any]:
    new = _matrix(case["new_logp"]).requires_grad_()
    mask = _mask(case.get("loss_mask"), case["new_logp"])
    rows = FlatTokens.from_rows(
        new, _matrix(case["old_logp"]), advantages=torch.zeros(len(new)), mask=mask
    )
    tokens = replace(rows, advantages=_advantages(case, new)[mask])
    low, high = _clip(case)
    settings = LossSettings(
        LOSS_TYPES[case.get("aggregation", "token")],
        epsilon_low=low,
        epsilon_high=high,
        max_completion_tokens=case.get("max_completion_length", 10),
    )
    sequences = int(mask.any(dim=1).sum())
    output = policy_loss(tokens, settings, Normalizer(len(tokens.logprobs), sequences))
    [gradient] = torch.autograd.grad(output.loss, new)
    return {"loss": output.loss.item(), "grad_finite": bool(torch.isfinite(gradient).all())}


def _clip(case: Mapping[str, Any]) -> tuple[float, float]:
    """How far the ratio may go down and up."""
    clip = case.get("clip", 0.2)
    low, high = clip if isinstance(clip, list) else (clip, clip)
    return case.get("clip_low", low), case.get("clip_high", high)


def _advantages(case: Mapping[str, Any], logprobs: Tensor) -> Tensor:
    """[B, T] from one for all, one per sequence, or one per token."""
    given = case["advantages"] if "advantages" in case else case["advantage"]
    if isinstance(given, list) and given and isinstance(given[0], list):
        return _matrix(given)
    values = torch.tensor(given, dtype=logprobs.dtype)
    per_token = len(logprobs) == 1 and values.numel() == logprobs.shape[1]
    return values.reshape(1, -1) if per_token else values.reshape(-1, 1).expand_as(logprobs)


def _matrix(rows: Sequence[Any]) -> Tensor:
    """[B, T], padded with NaN; null is a placeholder like NaN."""
    lists = _lists(rows)
    width = max(map(len, lists), default=0)
    values = [[math.nan if v is None else v for v in row] for row in lists]
    padded = [row + [math.nan] * (width - len(row)) for row in values]
    return torch.tensor(padded, dtype=torch.float32).reshape(len(lists), width)


def _mask(masks: Sequence[Any] | None, rows: Sequence[Any]) -> Tensor:
    """[B, T] true on trained tokens: those of the mask, or all that are no padding."""
    if masks is None:
        masks = [[1] * len(row) for row in _lists(rows)]
    if list(map(len, _lists(masks))) != list(map(len, _lists(rows))):
        pytest.fail("the mask does not have the shape of what it masks")
    return _matrix(masks).nan_to_num() > 0


def _lists(rows: Sequence[Any]) -> list[list[Any]]:
    """A single sequence may come without its outer brackets."""
    return [list(row) for row in rows] if rows and isinstance(rows[0], list) else [list(rows)]


def _scored(case: Mapping[str, Any]) -> dict[str, Any]:
    """Log-probability of what was sampled, unless the trainer refuses to sample so."""
    logits = torch.tensor(case["logits"] if "logits" in case else case["probs"]).float()
    logits = logits if "logits" in case else logits.log()
    sampled, engine = torch.tensor(case["sampled"]), torch.tensor(case["engine_logprob"])
    options = {name: case[name] for name in ("temperature", *LIMITS) if name in case}
    if refusal := _refusal(options):
        text = str(refusal)
        refused = {"raises_or_warns_at_config": True, "raises": refusal, "exception": True}
        return {**refused, "error": text, "message": text}
    logprobs, _ = selected_logprobs(
        logits.reshape(-1, logits.shape[-1]),
        sampled.reshape(-1),
        temperature=options.get("temperature", 1.0),
    )
    logprobs = logprobs.reshape(sampled.shape)
    ratio = (logprobs - engine).exp()
    return {
        "raises_or_warns_at_config": False,
        "trainer_logprob": logprobs.tolist(),
        "ratio": ratio.tolist(),
    }


def _refusal(options: Mapping[str, Any]) -> ConfigError | None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            AgentGRPOConfig(output_dir=folder, use_cpu=True, report_to="none", **options)
        except ConfigError as error:
            return error
    return None


def _mismatch(case: Mapping[str, Any]) -> dict[str, Any]:
    trainer = _matrix(case["trainer_logp"])
    tokens = FlatTokens.from_rows(
        trainer,
        _matrix(case["engine_logp"]),
        advantages=torch.zeros(len(trainer)),
        mask=_mask(case.get("loss_mask"), case["trainer_logp"]),
    )
    metrics = StepMetrics()
    opinions = Opinions(
        current=tokens.logprobs,
        old=tokens.logprobs,
        sampler=tokens.old_logprobs,
        advantages=tokens.advantages,
        sequence_ids=tokens.sequence_ids,
    )
    found = correct(opinions, CorrectionSettings(mode="sequence_truncate"))
    metrics.add_mismatch(opinions, found, is_whole=True)
    logged = metrics.over(Ranks(Accelerator(cpu=True)))
    return {"metrics": {name.rpartition("/")[2]: v for name, v in logged.items()}}


def _truncated(case: Mapping[str, Any]) -> dict[str, Any]:
    entries = case["trajectories"]
    outputs = [_output(entry) for entry in entries]
    advantages = [float(entry.get("advantage", 1.0)) for entry in entries]
    drop = case.get("mask_truncated", False)
    settings = PlanSettings(num_parts=1, num_iterations=1, token_budget=4096, mask_truncated=drop)
    part = make_window(outputs, advantages, settings, Ranks(Accelerator(cpu=True))).parts[0]
    rows = [
        losses if is_trained(output, mask_truncated=drop) else []
        for losses, output in zip(map(_losses, entries), outputs, strict=True)
    ]
    aggregation = case.get("aggregation", "token")
    limit = case.get("max_completion_length", 10)
    settings_of_loss = LossSettings(LOSS_TYPES[aggregation], max_completion_tokens=limit)
    output = policy_loss(_tokens(rows), settings_of_loss, part.normalizer)
    episodes = [Episode.of(output) for output in outputs]
    return {
        "loss": output.loss.item(),
        "optimizer_step": not part.is_empty,
        "denominator": part.normalizer.num_tokens,
        "metrics": {"clipped_ratio": window_metrics(episodes)["completions/clipped_ratio"]},
    }


def _losses(entry: Mapping[str, Any]) -> list[float]:
    """Of each token; on policy that is minus the advantage."""
    given = entry.get("per_token_loss", -float(entry.get("advantage", 1.0)))
    return list(given) if isinstance(given, list) else [float(given)] * entry["n_tokens"]


def _stop(word: str) -> StopReason:
    """A word that is no stop reason of ours is how an engine says that the turn is complete."""
    return StopReason(word) if word in list(StopReason) else StopReason.FINAL_ANSWER


def _output(entry: Mapping[str, Any]) -> RolloutOutput:
    count = entry["n_tokens"]
    sampled = Segment(
        ids=tuple(range(count)), source="sampled", logprobs=(-1.0,) * count, policy_version=0
    )
    return RolloutOutput(
        request_id="",
        group_id="g",
        task_id="",
        env="",
        seed=0,
        messages=(user("?"),),
        segments=(Segment(ids=(0,), source="template"), sampled),
        reward=1.0,
        stop_reason=_stop(entry["stop"]),
    )
