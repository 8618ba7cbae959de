"""Episodes through the real loop: tokenizer, template, parser, budget and record, all but a model.

What a policy earns here is what it would earn in training, word by word as the parser reads it.
"""

from dataclasses import dataclass
from functools import cache

from agentgym.checking.policies import Policy, View
from agentgym.checking.subject import Subject
from agentgym.engines.scripted import CallableEngine, EngineCall, ScriptedTurn
from agentgym.messages import Message
from agentgym.rendering import Renderer, dialect, renderer_for
from agentgym.rollout import GymScheduler, Player, Trajectory, run_trajectory
from agentgym.trajectory import Budget, RolloutOutput, RolloutRequest, Task

MAX_TURNS = 64
LOGPROB = -0.25
"""Of every sampled token: told apart from the 0.0 of what was not sampled."""
_BUDGET = Budget(max_turns=MAX_TURNS, max_sampled_tokens=1 << 18, max_tool_calls=4 * MAX_TURNS)


@dataclass(frozen=True, slots=True)
class Played:
    """An episode and what the engine was asked for in it."""

    output: RolloutOutput
    prompts: tuple[tuple[int, ...], ...]
    """[T] of each turn."""


class _Observed(GymScheduler):
    """Keeps its only trajectory at hand for the policy."""

    trajectory: Trajectory

    async def on_trajectory_start(self, trajectory: Trajectory) -> None:
        self.trajectory = trajectory
        await super().on_trajectory_start(trajectory)


@cache
def renderer() -> Renderer:
    """A real one, over bytes."""
    from agentgym.testing import byte_tokenizer

    return renderer_for(byte_tokenizer())


def write(message: Message) -> str:
    """A message as a policy would write it."""
    calls = [dialect("hermes").format_call(call) for call in message.tool_calls]
    return "\n".join(filter(None, [message.content, *calls]))


async def play_in_loop(
    subject: Subject, task: Task, policy: Policy, *, member: int = 0, golds: tuple[str, ...] = ()
) -> Played:
    """One trajectory."""
    what = f"task {task.id!r} played by {policy.name!r}"
    scheduler = _Observed(subject.build)

    def answer(call: EngineCall) -> ScriptedTurn:
        view = _view(scheduler.trajectory, call.turn, golds)
        with subject.asking(f"the turn {call.turn + 1} ({what})"):
            ids = [*renderer().encode(write(policy.act(view))), *renderer().stop_token_ids][:_CUT]
        return ScriptedTurn(token_ids=ids, logprobs=[LOGPROB] * len(ids), finish_reason="stop")

    engine = CallableEngine(answer).recording()
    player = Player(
        engine=engine,
        renderer=renderer(),
        scheduler=scheduler,
        budget=_BUDGET,
        env_timeout_s=subject.timeout_s,
    )
    with subject.asking(what):
        output = await run_trajectory(_request(subject, task, member), player)
    return Played(output, tuple(call.prompt_ids for call in engine.calls))


_CUT = 1 << 14
"""Longest turn, in tokens."""


def _view(trajectory: Trajectory, turn: int, golds: tuple[str, ...]) -> View:
    return View(
        task=trajectory.request.task,
        messages=tuple(trajectory.messages),
        tools=trajectory.tools,
        turn=turn,
        env=trajectory.resources["env"],
        golds=golds,
    )


def _request(subject: Subject, task: Task, member: int) -> RolloutRequest:
    return RolloutRequest(
        request_id=f"{task.id}-{member}",
        group_id=task.id,
        env=subject.name,
        task=task,
        seed=subject.seed,
        sampling_seed=member,
    )
