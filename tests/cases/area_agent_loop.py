"""The agent loop on a scripted policy: real env, tools, dialect and engine limits.

Cases that count tokens are played with a renderer of one token per character; all others with a
chat template.
"""

import asyncio
import importlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym.engines.base import Sampling
from agentgym.engines.scripted import ScriptedEngine, ScriptedTurn
from agentgym.rendering import renderer_for
from agentgym.rollout import collect
from agentgym.testing import byte_tokenizer
from agentgym.trajectory import RolloutOutput

kit = importlib.import_module("agentgym_cases_loop_kit")
"""Loaded by the runner."""

_COUNTED = ("prompt_tokens", "turn_tokens", "observation_tokens")
_LIMITS = ("max_turns", "max_tool_calls", "max_parse_errors", "max_blank_turns", "max_seconds")
_HOST_PATH = re.compile(r"File \"|(/[\w.-]+){2,}|[A-Z]:\\")


def run(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """What became of the trajectory, or of the emitted tokens."""
    return _emit(case) if "tokens_emitted" in case else _play(case)


def _emit(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """An engine gives these tokens, one after the other, until it has to stop."""
    pieces, stop = case["tokens_emitted"], tuple(case["stop"])
    assert case.get("dialect", "hermes")
    assert not case.get("script")

    def decode(ids: Sequence[int]) -> str:
        return "".join(pieces[i] for i in ids)

    engine = ScriptedEngine([range(len(pieces))], decode=decode)
    limit = case.get("max_new_tokens") or len(pieces)
    sampling = Sampling(max_tokens=limit, seed=0, stop=stop)
    generation = asyncio.run(engine.generate((0,), sampling, session="s"))
    whole = decode(generation.token_ids)
    ends = [whole.find(text) + len(text) for text in stop if text in whole]
    text = whole[: min(ends, default=len(whole))]
    return {
        "text_kept": text,
        "ids_kept": len(generation.token_ids),
        "finish_reason": generation.finish_reason,
        "decode_of_ids": whole,
        "decode_of_ids_may_differ_from_text": whole.startswith(text),
    }


def _play(case: Mapping[str, Any]) -> Mapping[str, Any]:
    counted = any(name in case for name in _COUNTED)
    spoken = case.get("dialect", "hermes")
    renderer = (
        kit.CharRenderer(spoken) if counted else renderer_for(byte_tokenizer(), dialect_name=spoken)
    )
    kept = kit.tools_of(
        case.get("tools_py"),
        sizes=case.get("observation_tokens", ()),
        timeout_s=case.get("tool_timeout_s"),
        max_output_tokens=case.get("max_tool_tokens"),
    )
    turns = _turns(case["script"], case.get("turn_tokens", ()), renderer)
    engine = kit.engine_of(turns, renderer, max_context=case.get("context_limit") or 2 * kit.PLENTY)
    prompt = "x" * case["prompt_tokens"] if "prompt_tokens" in case else case.get("prompt", "Go!")
    envs: list[Any] = []

    def make_env() -> Any:
        envs.append(kit.Question(kept, prompt))
        return envs[-1]

    budget = {name: case[name] for name in _LIMITS if name in case}
    budget["max_turn_tokens"] = case.get("max_new_tokens")
    budget["max_sampled_tokens"] = case.get("max_sampled_tokens", kit.PLENTY)
    player = kit.player_for(engine, renderer, make_env, budget=budget)
    said: dict[str, Any] = {}
    with kit.stopwatch(said):
        (output,) = asyncio.run(collect([kit.request()], player))
    said |= _summary(output, engine, renderer)
    return said | _of_tools(kept, envs[0], output, renderer)


def _turns(script: Sequence[Mapping[str, Any]], sizes: Sequence[int], renderer: Any) -> list[Any]:
    turns = []
    for index, turn in enumerate(script):
        text, reason = turn["text"], turn.get("finish_reason", "stop")
        if index < len(sizes):
            ids = renderer.as_tokens(text, sizes[index])
            turns.append(ScriptedTurn(token_ids=ids, finish_reason=reason))
        else:
            turns.append(ScriptedTurn(text=text, finish_reason=reason))
    return turns


def _summary(output: RolloutOutput, engine: Any, renderer: Any) -> dict[str, Any]:
    sampled = [tuple(s.ids) for s in output.segments if s.source == "sampled"]
    kept = sampled == [generation.token_ids for generation in engine.given]
    asked = [len(call.prompt_ids) + call.sampling.max_tokens for call in engine.calls]
    said = [message for message in output.messages if message.role == "assistant"]
    num_malformed = output.rollout_infos["tool_failures"].get("malformed", 0)
    return {
        "stop_reason": output.stop_reason.value,
        "final": kit.final_answer(output),
        "assistant_turns": len(said),
        "num_turns": len(said),
        "engine_calls": len(engine.calls),
        "sampled_tokens_kept": kept,
        "sampled_tokens_of_bad_turn_kept": kept,
        "max_requested_total": max(asked, default=0),
        "total_tokens": len(output.token_ids),
        "is_parse_error": num_malformed > 0,
        "parse_errors": num_malformed,
        "failed": output.stop_reason.is_failure,
        "error_text": output.error,
        "reward": output.reward,
        "content": said[-1].content if said else None,
    }


def _of_tools(kept: Any, env: Any, output: RolloutOutput, renderer: Any) -> dict[str, Any]:
    texts = kit.observations(output)
    results = env.episode.tool_results
    said: dict[str, Any] = {
        "n_tool_runs": len(kept.runs),
        "tools_run": kept.runs,
        "n_tool_calls": len(results),
        "observations": texts,
        "observation_truncated": any("characters cut" in t or " ... " in t for t in texts),
        "no_host_paths_in_observation": not any(map(_HOST_PATH.search, texts)),
    }
    for number, text in enumerate(texts, start=1):
        said[f"observation_{number}"] = text
        said[f"observation_{number}_tokens"] = len(renderer.encode(text))
        said[f"observation_{number}_chars"] = len(text)
    for number, result in enumerate(results, start=1):
        said[f"observation_{number}_is_error"] = result.error is not None
        said[f"observation_{number}_error"] = result.error
    return said
