"""Ids, masks and log-probabilities from the renderer to the loss, over a toy tokenizer.

The toy reads the longest word of its vocabulary; a role's special token, the content, `<E>` and a
newline make a message, and `<A>` asks for an answer.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import jinja2
import torch

from agentgym.messages import Message
from agentgym.rendering.dialects import dialect
from agentgym.rendering.template import TemplateRenderer
from agentgym.tokens import Segment, TokenTrace
from agentgym.tools import tool
from agentgym.tools.context import ToolContext
from agentgym.tools.limits import cut_middle
from agentgym.trainer.losses import FlatTokens, LossSettings, Normalizer, policy_loss
from agentgym.trainer.packing import Sample, empty_batch, pack, padded
from agentgym.trajectory import RolloutOutput, StopReason

SPECIALS = {"<U>": 1, "<A>": 2, "<T>": 3, "<E>": 4}
ROLES = {"user": "<U>", "assistant": "<A>", "tool": "<T>", "system": "<S>"}
LOSS_TYPES = {"token": "dapo", "sequence": "grpo", "constant": "dr_grpo"}
UNKNOWN = 10_000
"""Ids of characters that the vocabulary lacks begin here."""


class Toy:
    """What the renderer uses of a tokenizer."""

    name_or_path = "toy"

    def __init__(
        self,
        specials: Mapping[str, int],
        vocab: Mapping[str, int],
        *,
        bos: tuple[str, int] | None = None,
        adds_bos: bool = False,
        written_bos: int = 0,
    ) -> None:
        self._specials = {**specials, **({bos[0]: bos[1]} if bos else {})}
        self._words = {**vocab, **self._specials}
        self._by_length = sorted(self._words, key=len, reverse=True)
        self._texts = {id_: word for word, id_ in self._words.items()}
        self.added_tokens_decoder = {id_: word for word, id_ in self._specials.items()}
        self.eos_token_id = self._specials["<E>"]
        self.bos_token_id = bos[1] if bos else None
        self._adds_bos = adds_bos
        roles = {role: token for role, token in ROLES.items() if token in self._specials}
        self._roles = roles
        self.chat_template: str | dict[str, str] = (
            (bos[0] * written_bos if bos else "")
            + "{% for m in messages %}{% if m.role not in roles %}{{ raise_exception('role') }}"
            "{% endif %}{{ roles[m.role] }}{{ m.content }}<E>\n{% endfor %}"
            "{% if add_generation_prompt %}<A>{% endif %}"
        )

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        ids = [self.bos_token_id] if add_special_tokens and self._adds_bos else []
        position = 0
        while position < len(text):
            word = next((w for w in self._by_length if text.startswith(w, position)), None)
            ids.append(UNKNOWN + ord(text[position]) if word is None else self._words[word])
            position += len(word or text[position])
        return ids  # type: ignore[return-value]

    def decode(self, token_ids: list[int], **_: Any) -> str:
        return "".join(self._texts.get(id_) or chr(max(id_ - UNKNOWN, 0)) for id_ in token_ids)

    def apply_chat_template(
        self, conversation: Any, *, chat_template: str, add_generation_prompt: bool, **_: Any
    ) -> str:
        template = jinja2.Environment(keep_trailing_newline=True).from_string(chat_template)
        return template.render(
            messages=conversation,
            roles=self._roles,
            add_generation_prompt=add_generation_prompt,
            raise_exception=_refuse,
        )


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)


def run(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """By what the case is about."""
    if "turns" in case:
        return _trajectory(case)
    if "collate" in case:
        return _collated(case["collate"])
    if "rendered_prompt" in case:
        return _prompt(case)
    if "batch" in case:
        return _loss(case)
    if "tool_output" in case or "tool_output_gen" in case:
        return _cut(case)
    return _positions(case)


def _trajectory(case: Mapping[str, Any]) -> dict[str, Any]:
    toy = case.get("toy", {})
    specials = {**toy.get("specials", SPECIALS), **case.get("extra_special", {})}
    tokenizer = Toy(specials, toy.get("vocab", {}))
    renderer = TemplateRenderer(
        tokenizer, dialect("hermes"), stop_token_ids=case.get("eos_ids", ())
    )
    prompt = (
        case["prompt_ids"]
        if "prompt_ids" in case
        else renderer.render([_message(entry) for entry in case["messages"]], [])
    )
    trace = TokenTrace([Segment(ids=tuple(prompt), source="template")])
    for is_policy, turns in groupby(case["turns"], key=lambda turn: turn["role"] == "assistant"):
        if not is_policy:
            new = [_message(turn) for turn in turns]
            ids = renderer.bridge(trace, new, tools=[])
            trace.append(Segment(ids=tuple(ids), source="env"))
            continue
        for turn in turns:
            trace.append(_said(turn, renderer))
    return _recorded(trace)


def _said(turn: Mapping[str, Any], renderer: TemplateRenderer) -> Segment:
    """A turn as an engine returns it; how it ended shows in its ids, not in a flag."""
    turn.get("finish_reason")
    if "sampled_ids" not in turn:
        return Segment(ids=tuple(renderer.encode(turn["content"])), source="injected")
    ids = tuple(turn["sampled_ids"])
    logprobs = tuple(turn.get("logprobs", [-1.0] * len(ids)))
    version = turn.get("policy_version", 0)
    return Segment(ids=ids, source="sampled", logprobs=logprobs, policy_version=version)


def _recorded(trace: TokenTrace) -> dict[str, Any]:
    output = RolloutOutput(
        request_id="r",
        group_id="g",
        task_id="t",
        env="toy",
        seed=0,
        messages=(),
        segments=trace.segments,
        stop_reason=StopReason.FINAL_ANSWER,
    )
    output = RolloutOutput.model_validate_json(output.model_dump_json())
    mask = [int(own) for own in output.loss_mask]
    at_one = [p for p, own in zip(output.logprobs, mask, strict=True) if own]
    return {
        "input_ids": output.token_ids,
        "loss_mask": mask,
        "logprobs": output.logprobs,
        "logprobs_at_mask_1": at_one,
        "num_sampled": sum(mask),
        "num_turns": output.num_turns,
        "prompt_token_ids": output.prompt_token_ids,
        "response_token_ids": output.response_token_ids,
        "response_loss_mask": output.response_loss_mask,
        "rollout_logprobs": output.rollout_logprobs,
        "policy_versions": output.policy_versions,
        "lengths_agree": len(output.token_ids) == len(mask) == len(output.logprobs),
    }


def _message(turn: Mapping[str, Any]) -> Message:
    return Message(
        role=turn["role"],
        content=turn.get("content", ""),
        tool_call_id=turn.get("tool_call_id"),
        name=turn.get("name"),
    )


def _collated(given: Mapping[str, Any]) -> dict[str, Any]:
    """Rows as the trainer pads them, written with the pad id and on the side of the case."""
    pad_id, side = given["pad_id"], given.get("padding_side", "right")
    samples = [_sample(entry, index) for index, entry in enumerate(given["sequences"])]
    rows = {index: (ids, mask) for index, ids, mask in _rows(samples)}
    width = max((len(sample.ids) for sample in samples), default=0)
    found: dict[str, Any] = {"input_ids": [], "attention_mask": [], "loss_mask": []}
    for sample in samples:
        ids, mask = rows.get(sample.index, (list(sample.ids), [0] * len(sample.ids)))
        gap = width - len(ids)
        padding = {"input_ids": pad_id, "attention_mask": 0, "loss_mask": 0}
        values = {"input_ids": ids, "attention_mask": [1] * len(ids), "loss_mask": mask}
        for key, row in values.items():
            fill = [padding[key]] * gap
            found[key].append(fill + row if side == "left" else row + fill)
    return found


def _rows(samples: Sequence[Sample]) -> Iterator[tuple[int, list[int], list[int]]]:
    """(index, ids, mask) of what the trainer computes and trains on, by sample."""
    for batch in padded(samples, token_budget=64):
        assert batch.attention_mask is not None
        for row, index in enumerate(batch.sample_indices.tolist()):
            sample = next(sample for sample in samples if sample.index == index)
            length = int(batch.attention_mask[row].sum())
            trained = [int(c) + 1 for c in batch.columns[batch.rows == row]]
            ids = batch.input_ids[row, :length].tolist()
            ids += batch.targets[batch.rows == row].tolist()[-1:]
            ids += sample.ids[len(ids) :]
            yield index, ids, [int(position in trained) for position in range(len(ids))]


def _sample(entry: Mapping[str, Any], index: int) -> Sample:
    ids, mask = entry["ids"], [bool(flag) for flag in entry["mask"]]
    logprobs = entry.get("logprobs", [0.0] * len(ids))
    advantage = entry.get("advantage", 0.0)
    return Sample(
        ids=ids, mask=mask, logprobs=logprobs, advantage=advantage, group=index, index=index
    )


def _positions(case: Mapping[str, Any]) -> dict[str, Any]:
    """Where the trainer reads the trained tokens' log-probabilities, packed and padded."""
    case.get("fake_logits_rule")
    mask = [bool(flag) for flag in case["loss_mask"]]
    length = case.get("length", len(mask))
    if length != len(mask):
        raise ValueError(f"{length} tokens but {len(mask)} mask entries")
    sample = Sample(
        ids=list(range(length)),
        mask=mask,
        logprobs=[0.0] * length,
        advantage=1.0,
        group=0,
        index=0,
    )
    packed, plain = pack([sample], token_budget=length), padded([sample], token_budget=length)
    columns = [[c for batch in way for c in batch.columns.tolist()] for way in (packed, plain)]
    targets = [t for batch in packed for t in batch.targets.tolist()]
    assert columns[0] == columns[1]
    return {"logit_positions": columns[0], "targets": targets}


def _prompt(case: Mapping[str, Any]) -> dict[str, Any]:
    """The prompt's ids, from a template that writes what the case shows."""
    text = case["rendered_prompt"]
    head = text[: text.index("<U>")] if "<U>" in text else ""
    system, head = head, re.sub(r"<S>.*", "", head, flags=re.DOTALL)
    token = case.get("bos_token") or (re.match(r"<[^<>]+>", head) or ["<s>"])[0]
    toy = case.get("toy", {})
    tokenizer = Toy(
        {**toy.get("specials", SPECIALS), **({"<S>": 90} if "<S>" in system else {})},
        toy.get("vocab", {"\n": 5, "hi": 20}),
        bos=(token, case["bos_id"]),
        adds_bos=case.get("tokenizer_adds_bos", False),
        written_bos=head.count(token),
    )
    names = {token: role for role, token in ROLES.items()}
    messages = [
        Message(role=names[role], content=content)  # type: ignore[arg-type]
        for role, content in re.findall(r"(<[USAT]>)(.*?)<E>\n", text, flags=re.DOTALL)
    ]
    ids = TemplateRenderer(tokenizer, dialect("hermes")).render(messages, [])
    return {
        "input_ids": ids,
        "prompt_ids": ids,
        "prompt": ids,
        "count_of_bos": ids.count(case["bos_id"]),
    }


def _loss(case: Mapping[str, Any]) -> dict[str, Any]:
    """Of a step; the ratios of its trained tokens are given."""
    entries = case["batch"]
    samples = [_sample(entry, index) for index, entry in enumerate(entries)]
    ratios = [
        ratio
        for entry, sample in zip(entries, samples, strict=True)
        for ratio in _ratios(entry, sample)
    ]
    [batch] = pack(samples, token_budget=10_000) or [empty_batch()]
    logprobs = (batch.old_logprobs + torch.tensor(ratios).log()).requires_grad_()
    tokens = FlatTokens(logprobs, batch.old_logprobs, batch.advantages, batch.sequence_ids)
    settings = LossSettings(
        LOSS_TYPES[case.get("aggregation", "token")],
        max_completion_tokens=case.get("max_completion_length", 10),
    )
    if "clip" in case:
        settings = replace(settings, epsilon_low=case["clip"], epsilon_high=case["clip"])
    normalizer = Normalizer(batch.num_tokens, batch.num_sequences)
    output = policy_loss(tokens, settings, normalizer)
    loss = output.loss.item()
    trained = {"num_tokens": batch.num_tokens, "num_sequences": batch.num_sequences}
    return {"loss": loss, "finite": math.isfinite(loss), **trained}


def _ratios(entry: Mapping[str, Any], sample: Sample) -> list[float]:
    """One per trained token, from one each, one per token, or none at all."""
    given = entry.get("ratio", [1.0] * sample.num_trained)
    if len(given) == sample.num_trained:
        return [float(ratio) for ratio in given]
    return [float(given[position]) for position in sample.trained]


def _cut(case: Mapping[str, Any]) -> dict[str, Any]:
    """A tool's result, cut to its limit."""
    import asyncio

    text = _text(case)
    in_bytes = "bytes_per_token" in case
    per_token = case["bytes_per_token"] if in_bytes else case.get("chars_per_token", 1)
    limit = case["max_tool_tokens"]

    def count(text: str) -> int:
        return math.ceil(len(text.encode() if in_bytes else text) / per_token)

    def said() -> str:
        return text

    if limit < 8:
        result = cut_middle(text, limit, count)
    else:
        context = ToolContext(count_tokens=count)
        called = tool(max_output_tokens=limit)(said).call({}, context)
        result = asyncio.run(called).content
    return {
        "result": result,
        "result_tokens": count(result),
        "keeps_head": result[:1] == text[:1] and _shared(text, result) > 0,
        "keeps_tail": result[-1:] == text[-1:] and _shared(text[::-1], result[::-1]) > 0,
        "marks_cut": result != text and result not in text,
        "cut": result != text,
        "result_utf8_valid": result.encode().decode() == result,
    }


def _text(case: Mapping[str, Any]) -> str:
    if "tool_output" in case:
        return str(case["tool_output"])
    parts = case["tool_output_gen"]
    return str(parts.get("prefix", "") + parts["unit"] * parts["count"] + parts.get("suffix", ""))


def _shared(first: str, second: str) -> int:
    """Characters at the start that are the same."""
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))
