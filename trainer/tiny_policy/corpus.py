"""Demonstrations as text for the tokenizer and as ids and labels for the model."""

from collections.abc import Iterable
from random import Random
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedTokenizerFast

from agentgym.envs.tool_env import ToolEnv
from agentgym.trainer.tiny_policy.demonstrations import CLEAN, NOISY, Chat, Habits, demonstrate


class Demonstration(NamedTuple):
    """One conversation as the model sees it."""

    ids: torch.Tensor
    """[T] the whole conversation."""
    mask: torch.Tensor
    """[T] True on the assistant's tokens, the end of each turn included."""


class Corpus:
    """An endless supply of demonstrations, addressed by number."""

    def __init__(self, env: ToolEnv, *, seed: int) -> None:
        self._env = env
        self._tasks = env.tasks("train")
        self._tools: list[Any] = [tool.to_schema() for tool in env.tools]
        self._seed = seed

    async def chat(self, number: int, habits: Habits) -> Chat:
        """Demonstration `number`."""
        rng = Random(f"{self._seed}/{number}")
        return await demonstrate(self._env, self._tasks[number], habits=habits, rng=rng)

    async def texts(self, count: int) -> list[str]:
        """What the tokenizer learns from: roles and contents of clean and noisy conversations."""
        names = ", ".join(
            f"{t.name}({', '.join(t.parameters['properties'])})" for t in self._env.tools
        )
        texts = [f"Tools: {names}"] * count
        for number in range(count):
            chat = await self.chat(number, NOISY if number % 2 else CLEAN)
            texts += [f"{message['role']}\n{message['content']}" for message in chat]
        return texts

    async def encode(
        self, tokenizer: PreTrainedTokenizerFast, numbers: Iterable[int], habits: Habits
    ) -> list[Demonstration]:
        """Demonstrations as token ids."""
        return [self._encode(tokenizer, await self.chat(number, habits)) for number in numbers]

    def _encode(self, tokenizer: PreTrainedTokenizerFast, chat: Chat) -> Demonstration:
        encoded: Any = tokenizer.apply_chat_template(
            chat, tools=self._tools, return_dict=True, return_assistant_tokens_mask=True
        )
        return Demonstration(
            torch.tensor(encoded["input_ids"]),
            torch.tensor(encoded["assistant_masks"], dtype=torch.bool),
        )
