"""Checks of Gymnasium's contract: what is returned, what spaces hold, how an episode ends."""

import warnings
from typing import Any

import gymnasium
from gymnasium.utils.passive_env_checker import env_reset_passive_checker, env_step_passive_checker

from agentgym.checking.policies import FLOOR, Policy, random_calls
from agentgym.checking.report import Findings
from agentgym.checking.session import Session, difference
from agentgym.checking.subject import Subject, innermost
from agentgym.envs import Env
from agentgym.envs.contract import Contract, ResetResult, StepResult
from agentgym.errors import AgentGymError, EnvError, EpisodeOverError, UsageError
from agentgym.messages import user
from agentgym.tools import Tool

_TEXTS = ("", "x", "Answer: 1", "äß→字🙂\n\t\x00", "<|im_end|>" * 3, "word " * 5000)
CALLS = Policy("random calls", random_calls)


class _Recording(Contract):
    """Keeps what the author's code returned, before it becomes plain."""

    def __init__(self) -> None:
        super().__init__()
        self.raw: list[Any] = []

    def accept_reset(self, result: Any) -> ResetResult:
        self.raw.append(result)
        return super().accept_reset(result)

    def accept_step(self, result: Any, max_turns: int | None) -> StepResult:
        self.raw.append(result)
        return super().accept_step(result, max_turns)


async def episodes(subject: Subject) -> Findings:
    """Episodes can be played, and return plain values."""
    found, kinds, num_steps = Findings(), set(), 0
    for policy in (*FLOOR, *subject.oracle):
        session = Session(subject, subject.tasks[0], seed=subject.seed, policy=policy)
        recording = _Recording()
        innermost(session.env)._contract = recording
        await session.start()
        if not session.transcript[0]["observation"]:
            found.faults.append("reset returned no message: there is nothing to answer")
            break
        while await session.move():
            pass
        await session.close()
        num_steps += len(session.transcript) - 1
        kinds |= {fault for raw in recording.raw[1:] for fault in _types(raw)}
        found.faults += _silence(session)
    found.faults += sorted(kinds)
    found.note = f"{num_steps} steps"
    return found


def _types(raw: tuple[Any, ...]) -> list[str]:
    """What is no plain value in a step's result."""
    _, reward, terminated, truncated, _ = raw
    faults = []
    if type(reward) not in (float, int):
        faults.append(
            f"step returned the reward {reward!r} of type {type(reward).__name__}: return a plain "
            "float, float(reward)"
        )
    for name, value in (("terminated", terminated), ("truncated", truncated)):
        if type(value) is not bool:
            faults.append(f"step returned {name}={value!r} of type {type(value).__name__}: no bool")
    return faults


def _silence(session: Session) -> list[str]:
    """An episode that goes on must say something."""
    for entry in session.transcript[1:]:
        if not (entry["observation"] or entry["terminated"] or entry["truncated"]):
            return [
                f"{entry['turn']} went on without a message (action {entry['action']}): the policy "
                "would have nothing to answer; return an observation or end the episode"
            ]
    return []


async def gymnasium_api(subject: Subject) -> Findings:
    """Gymnasium's passive checks, and any text in the spaces."""
    found = Findings()
    env = subject.make()
    with subject.asking("spaces"):
        for text in _TEXTS:
            if not (
                env.action_space.contains(text) and env.observation_space.contains([user(text)])
            ):
                found.faults.append(f"the spaces do not contain the text {text[:20]!r}")
    options = {"task": subject.tasks[0]}
    with subject.asking("the sync reset and step"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        env_reset_passive_checker(env, seed=subject.seed, options=options)
        env_step_passive_checker(env, "Answer: 1")
        env.close()
    found.faults += [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
    return found


class _SyncSide:
    """An env whose async methods are its sync ones."""

    def __init__(self, env: Env) -> None:
        self.unwrapped, self._env = env.unwrapped, env

    @property
    def tools(self) -> tuple[Tool, ...]:
        return self._env.tools

    async def areset(self, **options: Any) -> ResetResult:
        return self._env.reset(**options)

    async def astep(self, action: Any) -> StepResult:
        return self._env.step(action)

    async def aclose(self) -> None:
        self._env.close()


async def sides(subject: Subject) -> Findings:
    """Who calls `reset` and `step` plays the episode that the loop plays."""
    transcripts = []
    for is_sync in (False, True):
        env: Any = subject.make()
        session = Session(
            subject,
            subject.tasks[0],
            seed=subject.seed,
            policy=CALLS,
            env=_SyncSide(env) if is_sync else env,  # type: ignore[arg-type]
        )
        await session.start()
        while await session.move():
            pass
        await session.close()
        transcripts.append(session.transcript)
    parts = difference(*transcripts)
    if parts is None:
        return Findings()
    return Findings([f"astep and step differ in {parts}; define one side only, the other follows"])


async def ending(subject: Subject) -> Findings:
    """Nothing pays after the end, and closing is always possible."""
    found = Findings()
    for policy in (*subject.oracle, CALLS):
        session = Session(subject, subject.tasks[0], seed=subject.seed, policy=policy)
        await session.start()
        while await session.move():
            pass
        if session.is_over:
            found.faults += await _paid_again(subject, session)
        await _try_close(subject, session.env, "close", found)
        await _try_close(subject, session.env, "the second close", found)
        found.faults += await _paid_after(subject, session, "close")
    return found


async def _try_close(subject: Subject, env: Env, what: str, found: Findings) -> None:
    try:
        with subject.asking(what):
            await env.aclose()
    except AgentGymError as error:
        found.faults.append(f"{error}; close must be possible at any time, any number of times")


async def _paid_again(subject: Subject, session: Session) -> list[str]:
    faults = await _paid_after(subject, session, "the end of the episode")
    with subject.asking("acut after the end"):
        rewards = await session.env.acut()
    if rewards:
        faults.append(f"acut after the end pays {rewards} again: return {{}} once scored")
    return faults


async def _paid_after(subject: Subject, session: Session, what: str) -> list[str]:
    """A step where there is no episode must raise, or at least pay nothing."""
    try:
        with subject.asking(f"step after {what}"):
            _, reward, *_ = await session.env.astep(session.last_action)
    except UsageError:
        return []
    except EnvError as error:
        if isinstance(error.__cause__, gymnasium.error.ResetNeeded | EpisodeOverError):
            return []
        return [f"{error}; leave that to Env, which raises ResetNeeded"]
    if not reward:
        return [f"step after {what} was played: it must raise EpisodeOverError"]
    return [f"step after {what} paid {reward} again: it must raise EpisodeOverError"]
