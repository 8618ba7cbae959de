"""Losses of whole steps, masks, and the trainer's log-probabilities beside the engine's."""

import math
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from agentgym.errors import ConfigError
from agentgym.messages import user
from agentgym.tokens import Segment
from agentgym.trainer.config import AgentGRPOConfig
from agentgym.trainer.episodes import Episode
from agentgym.trainer.losses import FlatTokens, LossSettings, Normalizer, policy_loss
from agentgym.trainer.metrics import StepMetrics, window_metrics
from agentgym.trainer.ranks import Ranks
from agentgym.trainer.selection import selected_logprobs
from agentgym.trainer.window import PlanSettings, is_trained, make_window
from agentgym.trajectory import RolloutOutput, StopReason

LOSS_TYPES = {"token": "dapo", "sequence": "grpo", "constant": "dr_grpo"}
LIMITS = ("top_p", "top_k", "min_p")
ENDINGS = {"stop": StopReason.FINAL_ANSWER, "eos": StopReason.FINAL_ANSWER}


def run(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """Whatever the input gives enough to compute."""
    if "trajectories" in case:
        return _truncated(case)
    if "per_token_loss" in case:
        return _reduced(case)
    if "engine_logp" in case:
        return _mismatch(case)
    if any(limit in case for limit in LIMITS):
        return _limited(case)
    if "logits" in case:
        return _scored(case, torch.tensor(case["logits"]))
    return _clipped(case)


def _reduced(case: Mapping[str, Any]) -> dict[str, Any]:
    rows = case["per_token_loss"]
    limit = case.get("max_completion_length", 10)
    whole = {name: _loss(rows, [range(len(rows))], name, limit) for name in LOSS_TYPES}
    found: dict[str, Any] = {f"loss_{name}": loss for name, loss in whole.items()}
    if "aggregation" in case:
        name = case["aggregation"]
        found["loss"] = _loss(rows, case["micro_batches"], name, limit)
        found["same_for_one_micro_batch"] = math.isclose(
            found["loss"], whole[name], rel_tol=1e-6, abs_tol=1e-9
        )
    return found


def _loss(
    rows: Sequence[Sequence[float]],
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


def _tokens(rows: Sequence[Sequence[float]]) -> FlatTokens:
    values = torch.tensor([value for row in rows for value in row])
    ids = [index for index, row in enumerate(rows) for _ in row]
    logprobs = torch.zeros_like(values)
    return FlatTokens(logprobs, logprobs, -values, torch.tensor(ids, dtype=torch.int64))


def _clipped(case: Mapping[str, Any]) -> dict[str, Any]:
    new = _row(case["new_logp"]).requires_grad_()
    tokens = FlatTokens.from_rows(
        new,
        _row(case["old_logp"]),
        advantages=torch.tensor([case["advantage"]]),
        mask=torch.tensor([case["loss_mask"]]),
    )
    clip = case.get("clip", 0.2)
    settings = LossSettings("dapo", epsilon_low=clip, epsilon_high=case.get("clip_high", clip))
    output = policy_loss(tokens, settings, Normalizer(len(tokens.logprobs), 1))
    [gradient] = torch.autograd.grad(output.loss, new)
    return {"loss": output.loss.item(), "grad_finite": bool(torch.isfinite(gradient).all())}


def _row(logprobs: Sequence[float | None]) -> Tensor:
    """[1, T]; null is a placeholder like NaN."""
    return torch.tensor([[math.nan if value is None else value for value in logprobs]])


def _scored(case: Mapping[str, Any], logits: Tensor) -> dict[str, Any]:
    logprobs, _ = selected_logprobs(
        logits[None], torch.tensor([case["sampled"]]), temperature=case.get("temperature", 1.0)
    )
    ratio = (logprobs - case["engine_logprob"]).exp()
    return {"trainer_logprob": logprobs.item(), "ratio": ratio.item()}


def _limited(case: Mapping[str, Any]) -> dict[str, Any]:
    """Sampling from a part of the distribution; refused unless the limit does nothing."""
    limits = {limit: case[limit] for limit in LIMITS if limit in case}
    with tempfile.TemporaryDirectory() as folder:
        try:
            AgentGRPOConfig(output_dir=folder, use_cpu=True, report_to="none", **limits)
        except ConfigError:
            return {"raises_or_warns_at_config": True}
    return {"raises_or_warns_at_config": False, **_scored(case, torch.tensor(case["probs"]).log())}


def _mismatch(case: Mapping[str, Any]) -> dict[str, Any]:
    tokens = FlatTokens.from_rows(
        _row(case["trainer_logp"]),
        _row(case["engine_logp"]),
        advantages=torch.zeros(1),
        mask=torch.tensor([case["loss_mask"]]),
    )
    metrics = StepMetrics()
    metrics.add_mismatch(tokens.logprobs, tokens.old_logprobs)
    logged = metrics.over(Ranks(Accelerator(cpu=True)))
    return {"metrics": {name.removeprefix("sampling/"): v for name, v in logged.items()}}


def _truncated(case: Mapping[str, Any]) -> dict[str, Any]:
    outputs = [_output(entry) for entry in case["trajectories"]]
    advantages = [float(entry.get("advantage", 1.0)) for entry in case["trajectories"]]
    drop = case["mask_truncated"]
    settings = PlanSettings(num_parts=1, num_iterations=1, token_budget=4096, mask_truncated=drop)
    part = make_window(outputs, advantages, settings, Ranks(Accelerator(cpu=True))).parts[0]
    rows = [
        _losses(entry) if is_trained(output, mask_truncated=drop) else []
        for entry, output in zip(case["trajectories"], outputs, strict=True)
    ]
    aggregation = case.get("aggregation", "token")
    settings_of_loss = LossSettings(LOSS_TYPES[aggregation])
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


def _output(entry: Mapping[str, Any]) -> RolloutOutput:
    count = entry["n_tokens"]
    sampled = Segment(
        ids=tuple(range(count)), source="sampled", logprobs=(-1.0,) * count, policy_version=0
    )
    stop = entry["stop"]
    return RolloutOutput(
        request_id="",
        group_id="g",
        task_id="",
        env="",
        seed=0,
        messages=(user("?"),),
        segments=(Segment(ids=(0,), source="template"), sampled),
        reward=1.0,
        stop_reason=ENDINGS[stop] if stop in ENDINGS else StopReason(stop),
    )
