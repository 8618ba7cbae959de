"""The tool `python`: cells of one interpreter that keeps its names, in the trajectory's sandbox.

A cell shows what a terminal would: what was printed and the value of a last expression. A policy
that forgets to print is told so, since an empty answer makes it try the same again.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from agentgym.tools.base import Tool, tool
from agentgym.tools.context import ToolContext
from agentgym.tools.sandbox.base import SandboxSpec
from agentgym.tools.sandbox.observation import tell

NUMPY = SandboxSpec(packages=("numpy",), preload=("numpy",))
"""What `ToolEnv.sandbox` must be for `python_numpy`."""


def python_tool(packages: Sequence[str] = ()) -> Tool:
    """The tool, told to have these packages; `SandboxSpec.packages` must name them too.

    Time is limited in the sandbox, where waiting for a free core does not count.
    """

    @tool(name="python", timeout_s=math.inf, max_output_tokens=2048, parallel=False)
    async def python(code: str, context: ToolContext) -> str:
        """Run Python code. Names, imports and files stay for the next call. You see what is \
printed, and the value of the last line if it is an expression.

        Args:
            code: The code.
        """
        sandbox = await context.sandbox.get()
        result = await sandbox.run_cell(code)
        return tell(result, context.sandbox.spec.limits, is_cell=True)

    installed = f" Installed: {', '.join(packages)}." if packages else ""
    return replace(python, description=python.description + installed)


python = python_tool()
"""With the standard library only."""
python_numpy = python_tool(NUMPY.packages)
"""With numpy; needs `NUMPY` as the env's `sandbox`."""
