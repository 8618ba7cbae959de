"""Settings that several commands share."""

from datetime import date
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from agentgym.config import Config
from agentgym.plugins import load_plugins
from agentgym.rollout.player import MAX_CONCURRENCY
from agentgym.tools.sandbox.settings import Backend, SandboxSettings


class EnvSection(Config):
    """What is played"""

    env: str = "calculator"
    """Name or id of a registered environment; see `agentgym envs`."""
    env_args: dict[str, Any] = {}
    """Arguments of the environment, such as '{"levels": [1, 2]}'."""
    scheduler: str | None = None
    """Referee of the trajectories: math_tips, react, thinking_tips, or one from a plugin."""
    rewards: tuple[str, ...] = ()
    """Reward functions of agentgym or of plugins, beside the env's own."""
    reward_weights: dict[str, float] = {}
    """Weight of each reward by name; the env's own where not named."""
    max_turns: int = Field(10, ge=1)
    """Turns of a trajectory."""
    max_tokens: int = Field(512, ge=1)
    """Tokens the policy may sample in a trajectory, over all turns."""
    concurrency: int = Field(256, ge=1, le=MAX_CONCURRENCY)
    """Trajectories played at once."""
    seed: int = Field(0, ge=0)
    """Equal seeds give equal tasks and equal sampling."""


class ModelSection(Config):
    """The policy"""

    model: str | None = Field(None, min_length=1)
    """Folder or hub id of a chat model; without it, the embedded tiny one."""
    dialect: str = "auto"
    """How tool calls are written: auto asks the chat template; else deepseek_v3, deepseek_v31, glm,
    harmony, hermes, kimi, llama3, llama_pythonic, mistral, phi4, qwen3_coder or react."""
    template_args: dict[str, Any] = {}
    """Handed to the chat template, such as '{"enable_thinking": false}'."""
    template_date: date | None = None
    """What chat templates are told that ask for the date. (default: the day the run starts)"""
    on_history_rewrite: Literal["fork", "keep", "refuse"] = "fork"
    """Where a chat template shows earlier turns otherwise once new messages come, as when it drops
    their reasoning: begin a new sample with what it shows, keep what was sampled, or do not run."""


class SandboxSection(Config):
    """Where code of the policy is run"""

    sandbox: Backend = "auto"
    """auto is the best of this machine, e2b a remote one; see `agentgym doctor`. Only the last
    runs code with no isolation."""
    sandbox_min_level: int | None = Field(None, ge=1, le=4)
    """Refuse to run below: 4 another machine, 3 namespaces, 2 Landlock, 1 nothing. (default: 2)"""
    sandbox_slots: int | None = Field(None, ge=1)
    """Programs that run at once. (default: one for each core)"""

    @property
    def sandbox_settings(self) -> SandboxSettings:
        return SandboxSettings(
            backend=self.sandbox, min_level=self.sandbox_min_level, slots=self.sandbox_slots
        )


class PluginSection(Config):
    """Extensions"""

    plugins: tuple[Path, ...] = ()
    """Python files that register envs, tools, rewards and more; run first."""

    def load_plugins(self) -> None:
        """Run the plugin files.

        Raises:
            ConfigError: one cannot be run; names the file and the line.
        """
        load_plugins(self.plugins)
