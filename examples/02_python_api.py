"""Train from Python: the trainer is TRL's `GRPOTrainer`, with an env in place of prompts.

    python examples/02_python_api.py --steps 40

Everything TRL and Hugging Face take goes in as usual: callbacks, `peft_config`, checkpoints,
`report_to`. Reward functions see the whole trajectory; the env's own rewards stand beside them.
"""

import argparse

from agentgym.trainer.config import AgentGRPOConfig
from agentgym.trainer.grpo import AgentGRPOTrainer
from agentgym.trainer.tiny_policy import PATH
from agentgym.trajectory import RolloutOutput


def few_turns(output: RolloutOutput) -> float:
    """From 1 for a single turn down to 0 for ten."""
    return 1 - (output.num_turns - 1) / 9


def main(steps: int, num_eval_tasks: int) -> None:
    args = AgentGRPOConfig(
        output_dir="runs/python_api",
        max_steps=steps,
        per_device_train_batch_size=64,
        num_generations=8,
        learning_rate=4e-4,
        scale_rewards="none",
        reward_weights={"few_turns": 0.05},
        num_eval_tasks=num_eval_tasks,
        save_strategy="no",
        report_to="none",
    )
    trainer = AgentGRPOTrainer(str(PATH), args, env="calculator", rewards=[few_turns])
    before = trainer.evaluate_env()
    trainer.train()
    after = trainer.evaluate_env()
    print(f"reward on held-out tasks: {before['reward']:.3f} -> {after['reward']:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--num-eval-tasks", type=int, default=100)
    main(**vars(parser.parse_args()))
