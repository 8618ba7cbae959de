"""Harbor's task directories as tasks, as far as their tests run without a container."""

from agentgym.envs.adapters.harbor.env import HarborEnv
from agentgym.envs.adapters.harbor.folder import HarborTask, read_task, task_folders

__all__ = ["HarborEnv", "HarborTask", "read_task", "task_folders"]
