"""GEM's way: one env after the other in a plain loop.

    python gem_rollouts.py COUNT [TOKENIZER]

With a tokenizer (a folder), the env is wrapped as GEM's own training examples do: every observation
is the whole conversation through the chat template; prompt and answer of each turn are encoded, as
a policy needs them. Without one nothing but text is handled. Either way there are no masks, no
validation of arguments, no timeouts and no concurrency.
"""

import json
import sys
from typing import Any

from arithmetic import CALL, TOOL, Clock, answer, calculate, question, turns
from gem.core import Env
from gem.tools.base_tool import BaseTool
from gem.tools.tool_env_wrapper import ToolEnvWrapper
from gem.wrappers.observation_wrapper import ObservationWrapper


class Arithmetic(Env):
    """Ends with the answer."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed)
        return question(self.index), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "", float(action == answer(self.index)), True, False, {}


class Calculate(BaseTool):
    """Reads a call as GEM's own tools do: by regular expression."""

    tool_type = name = TOOL

    def instruction_string(self) -> str:
        return f"Call {TOOL} with an expression."

    def execute_action(self, action: str) -> tuple[bool, bool, str, str]:
        match = CALL.search(action)
        if match is None:
            return False, True, "", ""
        result = calculate(json.loads(match[1])["arguments"]["expression"])
        return True, False, result, action[: match.end()]


def play(index: int, tokenizer: Any) -> float:
    """One episode's return."""
    env: Any = ToolEnvWrapper(Arithmetic(index), tools=[Calculate()])
    if tokenizer is not None:
        env = ObservationWrapper(env, tokenizer=tokenizer)
    observation, _ = env.reset(seed=index)
    total = 0.0
    for said in turns(index):
        if tokenizer is not None:
            tokenizer.encode(observation, add_special_tokens=False)
            tokenizer.encode(said, add_special_tokens=False)
        observation, reward, terminated, truncated, _ = env.step(said)
        total += reward
        if terminated or truncated:
            break
    return total


def main() -> None:
    count, tokenizer = int(sys.argv[1]), None
    if len(sys.argv) > 2:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(sys.argv[2])
    play(0, tokenizer)
    clock = Clock()
    correct = sum(play(index, tokenizer) for index in range(count))
    print(json.dumps({**clock.spent(), "correct": correct}))


if __name__ == "__main__":
    main()
