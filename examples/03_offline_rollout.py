"""Play an env without training it, and see where every token came from.

    python examples/03_offline_rollout.py

`agentgym rollout --env calculator` does the same in colour; here are the pieces it is made of. The
player is what the trainer uses, so what is debugged here is what is trained there.
"""

import asyncio

from agentgym import envs
from agentgym.engines.loading import load_model, load_tokenizer
from agentgym.engines.transformers import transformers_engine
from agentgym.rendering import renderer_for
from agentgym.rollout import GymScheduler, Player, collect
from agentgym.trainer.tiny_policy import PATH
from agentgym.trajectory import Budget, RolloutRequest

ENV, MODEL = "calculator", str(PATH)


async def main() -> None:
    engine = transformers_engine(load_model(MODEL, dtype="float32"))
    renderer = renderer_for(load_tokenizer(MODEL))
    player = Player(
        engine=engine,
        renderer=renderer,
        scheduler=GymScheduler(lambda: envs.make(ENV)),
        budget=Budget(max_turns=6, max_sampled_tokens=256),
    )
    tasks = envs.make(ENV).tasks("eval")
    requests = [
        RolloutRequest(
            request_id=f"r{i}", group_id=f"r{i}", env=ENV, task=tasks[i], seed=i, sampling_seed=i
        )
        for i in range(4)
    ]
    for output in await collect(requests, player):
        print(f"{output.task_id}: reward {output.reward}, {output.stop_reason}, {output.rewards}")
        for segment in output.segments:
            print(f"  {segment.source:>8} {len(segment.ids):4d}  {renderer.decode(segment.ids)!r}")
    await engine.aclose()


if __name__ == "__main__":
    asyncio.run(main())
