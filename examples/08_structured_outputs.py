"""A turn that must have a form: the env asks for JSON, and every sampled token keeps to it.

    pip install -e '.[structured]'
    python examples/08_structured_outputs.py

The embedded policy has never seen JSON. Its first turn is free and trained; the second is
constrained: sampled from what still fits, in the record, and not trained.
"""

import asyncio
from typing import Any

from agentgym.engines.loading import load_model, load_tokenizer
from agentgym.engines.transformers import transformers_engine
from agentgym.envs import Task, TextEnv
from agentgym.envs.base import StepResult
from agentgym.envs.text_env import TextStep
from agentgym.rendering import renderer_for
from agentgym.rollout import GymScheduler, Player, run_trajectory
from agentgym.trainer.tiny_policy import PATH
from agentgym.trajectory import RolloutRequest

VERDICT = {
    "type": "object",
    "properties": {"sure": {"type": "boolean"}, "digit": {"enum": list(range(10))}},
    "required": ["sure", "digit"],
    "additionalProperties": False,
}


class Verdicts(TextEnv):
    """Lets the policy think, then wants its verdict as JSON."""

    def start(self, task: Task) -> str:
        self.has_thought = False
        return "What is 3 + 4? Think first."

    def respond(self, text: str) -> TextStep:
        is_verdict, self.has_thought = self.has_thought, True
        return TextStep("Your verdict?", float('"digit":7' in text), is_verdict)

    def step(self, action: Any) -> StepResult:
        observation, reward, terminated, truncated, info = super().step(action)
        return (
            observation,
            reward,
            terminated,
            truncated,
            {
                **info,
                "constraint": {"json_schema": VERDICT},
            },
        )


async def main() -> None:
    tokenizer = load_tokenizer(str(PATH))
    renderer = renderer_for(tokenizer)
    engine = transformers_engine(load_model(str(PATH), dtype="float32"), tokenizer=tokenizer)
    player = Player(engine=engine, renderer=renderer, scheduler=GymScheduler(Verdicts))
    for seed in range(3):
        request = RolloutRequest(
            request_id=f"r{seed}",
            group_id="g",
            env="verdicts",
            task=Task(id="sum"),
            seed=0,
            sampling_seed=seed,
        )
        output = await run_trajectory(request, player)
        for segment in output.segments:
            if segment.source == "sampled":
                mask = "trained" if segment.is_trained else "form"
                print(f"{seed} {mask:>7}  {renderer.decode(segment.ids)!r}")
    await engine.aclose()


if __name__ == "__main__":
    asyncio.run(main())
