"""Programs that nobody trusts: run in a sandbox, graded by tests that they cannot see.

python examples/07_code_execution.py
agentgym rollout --env code --policy oracle

The same tests are a task of the `code` env, or of any other with `--rewards code`.
"""

import asyncio

from agentgym.envs.code import CodeEnv
from agentgym.envs.code.grading import grade, read_tests
from agentgym.tools.sandbox import Limits, SandboxSpec
from agentgym.tools.sandbox.lazy import LazySandbox
from agentgym.tools.sandbox.shared import shared_provider
from agentgym.trajectory import Task

TESTS = [
    {"kind": "call", "function": "double", "args": [number], "expected": 2 * number}
    for number in (0, 2, -3, 10**20)
]
PROGRAMS = {
    "honest": "def double(x):\n    return x + x",
    "half right": "def double(x):\n    return x * x",
    "exits as if all were well": "import os\ndef double(x):\n    os._exit(0)",
    "equal to everything": (
        "class Same(int):\n    __eq__ = lambda self, other: True\n"
        "def double(x):\n    return Same(7)"
    ),
    "never ends": "def double(x):\n    while True:\n        pass",
    "wants your keys": "import os\ndef double(x):\n    return [*os.environ, *os.listdir('/root')]",
}


async def graded() -> None:
    """What each program is worth."""
    provider = await shared_provider()
    for name, program in PROGRAMS.items():
        found = await grade(
            provider, program, read_tests(TESTS), spec=SandboxSpec(limits=Limits(cpu_s=0.5))
        )
        reason = next((result.reason for result in found.results if not result.passed), "")
        print(f"{name}: {found.fraction:.2f} {reason}")


async def cells() -> None:
    """One interpreter that keeps its names, as the tool `python` has it."""
    async with LazySandbox() as lazy:
        sandbox = await lazy.get()
        await sandbox.run_cell("numbers = [3, 1, 2]")
        print(f"sorted: {(await sandbox.run_cell('sorted(numbers)')).value}")


async def played() -> None:
    """The tests as a task of the env."""
    env = CodeEnv(tools=())
    data = {"statement": "Write `double(x)`.", "public_tests": TESTS[:1], "hidden_tests": TESTS[1:]}
    await env.areset(seed=0, options={"task": Task(id="double", data=data)})
    _, reward, *_ = await env.astep(f"```python\n{PROGRAMS['honest']}\n```")
    await env.aclose()
    print(f"reward: {reward}")


async def main() -> None:
    await graded()
    await cells()
    await played()


if __name__ == "__main__":
    asyncio.run(main())
