"""The tool `shell`: one line of `sh` at a time, in the trajectory's sandbox.

Each call is a shell of its own: files stay, variables and the current folder do not.
"""

import math

from agentgym.tools.base import tool
from agentgym.tools.context import ToolContext
from agentgym.tools.sandbox.observation import tell


@tool(timeout_s=math.inf, max_output_tokens=2048, parallel=False)
async def shell(command: str, context: ToolContext) -> str:
    """Run a command with sh in the working directory. Files stay for the next call; variables, \
the current directory and background processes do not.

    Args:
        command: The command line.
    """
    sandbox = await context.sandbox.get()
    return tell(await sandbox.run_shell(command), context.sandbox.spec.limits)
