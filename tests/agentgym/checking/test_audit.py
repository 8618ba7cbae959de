"""The audit of a record finds what is wrong with it: each record here is wrong in one place."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agentgym.checking.api import subject_of
from agentgym.checking.audit import faults_of
from agentgym.checking.looped import Played, play_in_loop
from agentgym.checking.policies import ORACLE
from agentgym.envs.calculator import CalculatorEnv
from agentgym.messages import user
from agentgym.trajectory import RolloutOutput


@pytest.fixture(scope="module")
def played() -> Played:
    """An episode of several turns."""
    subject = subject_of(CalculatorEnv, env_args={"levels": [2]}, num_tasks=2)
    return asyncio.run(play_in_loop(subject, subject.tasks[0], ORACLE))


def changed(played: Played, **update: Any) -> Played:
    return replace(played, output=played.output.model_copy(update=update))


def with_segment(played: Played, of: str, **update: Any) -> Played:
    """The first segment of a source, changed."""
    segments = list(played.output.segments)
    index = next(i for i, segment in enumerate(segments) if segment.source == of)
    segments[index] = segments[index].model_copy(update=update)
    return changed(played, segments=tuple(segments))


def short_logprobs(played: Played) -> Played:
    first = next(s for s in played.output.segments if s.source == "sampled")
    return with_segment(played, "sampled", logprobs=first.logprobs[:-1])


def other_words(played: Played) -> Played:
    messages = played.output.messages
    return changed(played, messages=(messages[0], user("something else"), *messages[2:]))


def unwritable(output: RolloutOutput) -> dict[str, Any]:
    return {**output.rollout_infos, "pair": (1, 2)}


TAMPERED: dict[str, tuple[Callable[[Played], Played], str]] = {
    "a logprob is missing": (short_logprobs, "ids, mask and logprobs have the lengths"),
    "an env token has a logprob": (
        lambda played: with_segment(played, "env", logprobs=(-1.0,)),
        "(env) has logprobs {-1.0}",
    ),
    "an env token counts as sampled": (
        lambda played: with_segment(played, "env", source="sampled"),
        "has logprobs set()",
    ),
    "a prompt was cut": (
        lambda played: replace(played, prompts=(played.prompts[0][:-1], *played.prompts[1:])),
        "turn 1: the prompt is not what was recorded",
    ),
    "a turn is not recorded": (
        lambda played: replace(played, prompts=(*played.prompts, ())),
        "4 turns were sampled and 3 recorded",
    ),
    "a message says something else": (other_words, "message 1 (user) is not among the tokens"),
    "something cannot be written": (
        lambda played: changed(played, rollout_infos=unwritable(played.output)),
        "comes back from JSON as another one",
    ),
}


def test_an_honest_record_has_no_faults(played: Played) -> None:
    """Three turns, so that there is something to get wrong."""
    assert played.output.num_turns == 3
    assert list(faults_of(played)) == []


@pytest.mark.parametrize("kind", TAMPERED)
def test_a_tampered_record_is_found(kind: str, played: Played) -> None:
    """Each invariant is looked at."""
    tamper, words = TAMPERED[kind]

    assert words in " ".join(faults_of(tamper(played)))
