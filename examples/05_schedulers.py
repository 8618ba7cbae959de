"""What happens between two turns is a scheduler's: hints after wrong answers, ReAct, your own.

    python examples/05_schedulers.py

The policy is a script here, so that it can be seen what each scheduler makes of the same mistake.
With a model: `agentgym train --env maths --scheduler math_tips`, or a scheduler from a plugin file.
"""

import asyncio

from agentgym import envs
from agentgym.engines.scripted import ScriptedEngine
from agentgym.registry import SCHEDULERS
from agentgym.rendering import renderer_for
from agentgym.rollout import GymScheduler, NextTurn, Player, Trajectory, run_trajectory
from agentgym.rollout.schedulers import MathTipsScheduler, ReActScheduler, ThinkingTipsScheduler
from agentgym.testing import byte_tokenizer
from agentgym.trajectory import RolloutRequest, Task, Turn

TASK = Task(id="sum", data={"question": "Calculate 17 + 25.", "answer": "42"})
WRONG = "<think>17 + 25 is 41.</think>17 and 25 make\nAnswer: 41"
CALL = "Action: calculator\nAction Input: 17+25\n"


@SCHEDULERS.register("countdown_of_turns")
class CountdownScheduler(GymScheduler):
    """Tells the policy how many turns it has left; only one hook differs."""

    async def step(self, trajectory: Trajectory, turn: Turn) -> NextTurn:
        following = await super().step(trajectory, turn)
        *others, last = following.messages
        left = f"{last.content}\n({9 - turn.index} turns left)"
        return NextTurn(messages=(*others, last.model_copy(update={"content": left})))


SCRIPTS = {
    MathTipsScheduler: ("hermes", [WRONG, " 7 + 5 is 12, carry 1.\nAnswer: 42"]),
    ThinkingTipsScheduler: ("hermes", [WRONG, "<think>7 + 5 is 12.</think>Answer: 42"]),
    ReActScheduler: ("react", [f"Thought: I add.\n{CALL}", "Final Answer: Answer: 42"]),
    CountdownScheduler: ("react", [f"Thought: I add.\n{CALL}", "Final Answer: Answer: 42"]),
}


async def main() -> None:
    request = RolloutRequest(
        request_id="r", group_id="r", env="calculator", task=TASK, seed=0, sampling_seed=0
    )
    for scheduler, (dialect, script) in SCRIPTS.items():
        renderer = renderer_for(byte_tokenizer(), dialect_name=dialect)
        player = Player(
            engine=ScriptedEngine(script, encode=renderer.encode, decode=renderer.decode),
            renderer=renderer,
            scheduler=scheduler(lambda: envs.make("calculator")),
        )
        output = await run_trajectory(request, player)
        print(f"\n{scheduler.__name__}: {output.stop_reason}, reward {output.reward}")
        for number, trace in enumerate(output.traces):
            for segment in trace:
                mask = "trained" if segment.is_trained else ""
                text = renderer.decode(segment.ids)
                print(f"  {number} {segment.source:>8} {mask:>7}  {text!r}")


if __name__ == "__main__":
    asyncio.run(main())
