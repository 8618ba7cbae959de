"""Checks of rewards: they tell a perfect policy from one that knows nothing, and cannot be talked
into paying.

All policies play the same tasks through the real loop; the checks judge what was measured once.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from agentgym.checking.looped import Played, play_in_loop
from agentgym.checking.policies import FLOOR, ORACLE, golds_of
from agentgym.checking.report import Findings
from agentgym.checking.subject import Subject, innermost
from agentgym.trajectory import RolloutOutput

_SHARE_OF_TIME = 0.5
"""Of the deadline, after which no further task is begun."""
_LEAST_TASKS = 2
_FLOOR = 0.5
"""Of the way from the lowest return to the oracle's: what knows nothing must stay below."""
_TOP = 0.95
"""Of the way from the lowest return to the highest: what the oracle must reach on average."""
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Measured:
    """Episodes of every policy on the same tasks."""

    outputs: dict[str, list[RolloutOutput]]
    """By policy, in the order of the tasks."""
    low: float
    high: float
    """Declared range of the return."""

    def returns(self, policy: str) -> list[float]:
        """Of the scored episodes."""
        return [output.reward for output in self.outputs[policy] if output.reward is not None]

    def mean(self, policy: str) -> float:
        """Over the scored episodes."""
        scored = self.returns(policy)
        return math.fsum(scored) / len(scored) if scored else math.nan

    @property
    def has_oracle(self) -> bool:
        return ORACLE.name in self.outputs

    @property
    def top(self) -> float:
        """Mean return of the oracle; without one, the highest that is declared."""
        return self.mean(ORACLE.name) if self.has_oracle else self.high


async def policies(subject: Subject) -> Findings:
    """No policy makes the env fail, and every episode is scored."""
    players = (*subject.oracle, *FLOOR)
    golds = golds_of(subject.tasks)
    outputs: dict[str, list[RolloutOutput]] = {player.name: [] for player in players}
    started, num_tasks = time.monotonic(), 0
    for task in subject.tasks:
        spent = time.monotonic() - started
        if num_tasks >= _LEAST_TASKS and spent > _SHARE_OF_TIME * subject.timeout_s:
            break
        num_tasks += 1
        for player in players:
            played: Played = await play_in_loop(subject, task, player, golds=golds)
            outputs[player.name].append(played.output)
    env = subject.make()
    subject.discard(env)
    low, high = innermost(env).reward_range
    subject.memo["measured"] = Measured(outputs, low, high)
    faults = [fault for player in players for fault in _failures(outputs[player.name], player.name)]
    note = f"{len(players)} policies on {num_tasks} tasks"
    if num_tasks < len(subject.tasks):
        note += f" (of {len(subject.tasks)}: the env is slow)"
    return Findings(faults, note=note)


def _failures(outputs: Sequence[RolloutOutput], policy: str) -> list[str]:
    """The first of a policy, if any."""
    for output in outputs:
        where = f"task {output.task_id!r} played by {policy!r}"
        if output.stop_reason.is_failure:
            return [f"{where}: {output.stop_reason}: {output.error}; no action may break an env"]
        if output.reward is None:
            return [
                f"{where}: unscored, rewards {output.rewards}: score must return a finite number "
                "for at least one reward"
            ]
    return []


async def reward_range(subject: Subject) -> Findings:
    """Returns are finite, within the declared range, and not all the same."""
    measured: Measured = subject.memo["measured"]
    low, high = measured.low - _TOLERANCE, measured.high + _TOLERANCE
    found, seen = Findings(), set()
    for policy, outputs in measured.outputs.items():
        returns = measured.returns(policy)
        seen |= set(returns)
        outside = [output for output in outputs if not low <= (output.reward or 0.0) <= high]
        if outside:
            found.faults.append(
                f"{policy!r} earned {outside[0].reward} on task {outside[0].task_id!r}, outside of "
                f"[{measured.low:g}, {measured.high:g}]: scale it, or declare reward_range on the "
                "env"
            )
    if len(seen) == 1 and measured.has_oracle:
        found.faults.append(
            f"every policy, the oracle too, earned {seen.pop():g} on every task: a constant reward "
            "teaches nothing"
        )
    elif len(seen) == 1:
        found.warnings.append(
            f"every policy tried here earned {seen.pop():g}: give the env an "
            "oracle(task, messages), so that it shows that more can be earned"
        )
    found.note = f"{min(seen, default=0):g} to {max(seen, default=0):g}"
    return found


async def oracle(subject: Subject) -> Findings:
    """The oracle earns the highest return."""
    measured: Measured = subject.memo["measured"]
    if not measured.has_oracle:
        return Findings(skipped="the env has no oracle(task, messages)")
    mean = measured.mean(ORACLE.name)
    wanted = measured.low + _TOP * (measured.high - measured.low)
    best = max(measured.outputs, key=measured.mean)
    found = Findings(note=f"mean return {mean:.3g} of {measured.high:g}")
    if mean < wanted - _TOLERANCE:
        worst = min(measured.outputs[ORACLE.name], key=lambda output: output.reward or 0.0)
        found.faults.append(
            f"the oracle earned {mean:.3g} on average, {wanted:.3g} is expected of "
            f"[{measured.low:g}, {measured.high:g}]; least on task {worst.task_id!r}: "
            f"{worst.reward}, {worst.stop_reason}; mend the oracle or the score, or declare "
            "reward_range"
        )
    elif measured.mean(best) > mean + _TOLERANCE:
        found.faults.append(
            f"{best!r} earned {measured.mean(best):.3g} on average, more than the oracle's "
            f"{mean:.3g}"
        )
    return found


async def floor(subject: Subject) -> Findings:
    """Policies that know nothing earn far less than the oracle."""
    measured: Measured = subject.memo["measured"]
    limit = measured.low + _FLOOR * (measured.top - measured.low)
    means = {policy.name: measured.mean(policy.name) for policy in FLOOR}
    highest = max(means, key=lambda name: means[name])
    faults = [
        f"{policy.name!r} earned {means[policy.name]:.3g} on average, {limit:.3g} is too much: "
        f"{' '.join((policy.act.__doc__ or '').split())[:-1].lower()} must not pay"
        for policy in FLOOR
        if means[policy.name] >= limit
    ]
    return Findings(faults, note=f"at most {means[highest]:.3g} ({highest}), limit {limit:.3g}")
