"""The checklists of envs and tools, in the order in which they are run."""

from agentgym.checking import (
    audit,
    building,
    consistency,
    contract,
    fresh,
    hiding,
    leaking,
    measuring,
    repeating,
    rewarding,
    schemas,
)
from agentgym.checking.runner import Check

_PLAYS = ("build", "tasks_exist", "episodes")
_REPEATS = (*_PLAYS, "global_random", "seeds")
ENV_CHECKS: tuple[Check, ...] = (
    Check("build", "it can be built", building.building),
    Check(
        "registration",
        "Gymnasium and the loop find it by its id",
        building.registration,
        ("build",),
    ),
    Check("tools", "models can know how to call its tools", schemas.tools, ("build",)),
    Check("tasks_exist", "there are tasks to play", building.tasks_exist, ("build",)),
    Check(
        "tasks",
        "tasks are addressed by index, unique, disjoint by split",
        building.tasks,
        ("tasks_exist",),
    ),
    Check(
        "episodes",
        "episodes can be played and return plain values",
        contract.episodes,
        ("build", "tasks_exist"),
    ),
    Check("held_out", "eval asks other questions than train", consistency.held_out, _PLAYS),
    Check(
        "consistency",
        "tasks and tools stay as they are, every call is answered",
        consistency.consistency,
        _PLAYS,
    ),
    Check("gymnasium", "Gymnasium's checks pass", contract.gymnasium_api, _PLAYS),
    Check(
        "ending", "nothing pays after the end, close is always possible", contract.ending, _PLAYS
    ),
    Check(
        "global_random", "global random generators are untouched", repeating.global_random, _PLAYS
    ),
    Check(
        "seeds",
        "same task, seed and actions: same episode",
        repeating.seeds,
        (*_PLAYS, "global_random"),
    ),
    Check(
        "fresh_process",
        "so too in a new process with another hash seed",
        fresh.fresh_process,
        _REPEATS,
    ),
    Check("sides", "sync and async methods play the same", contract.sides, _REPEATS),
    Check(
        "groups",
        "the members of a group begin in one state",
        repeating.groups,
        _REPEATS,
    ),
    Check(
        "interleaving",
        "two envs at once are two envs alone",
        repeating.interleaving,
        _REPEATS,
    ),
    Check("loop", "tokens, masks and messages of the real loop agree", audit.loop, _PLAYS),
    Check("policies", "no policy breaks it, every episode is scored", rewarding.policies, _PLAYS),
    Check(
        "reward_range",
        "returns are finite, in range, not constant",
        rewarding.reward_range,
        ("policies",),
    ),
    Check("oracle", "its oracle is at the top", rewarding.oracle, ("reward_range",)),
    Check(
        "floor",
        "knowing nothing and talking the grader over do not pay",
        rewarding.floor,
        ("reward_range", "oracle"),
    ),
    Check(
        "answer_hidden",
        "the question does not tell the answer",
        hiding.answer_hidden,
        ("policies",),
    ),
    Check(
        "shared_state", "class and module variables stay as they are", leaking.shared_state, _PLAYS
    ),
    Check("process", "the process's own state stays as it is", consistency.process, _PLAYS),
    Check("leaks", "no thread, task, file, process or env is left", leaking.leaks, _PLAYS),
    Check("records", "what it reports is plain JSON", measuring.records, _PLAYS),
    Check("speed", "resets and steps are fast", measuring.speed, _PLAYS),
)
