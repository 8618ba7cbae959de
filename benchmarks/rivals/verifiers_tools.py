"""The tool as verifiers runs it: an MCP server in a process of its own."""

import arithmetic
import verifiers.v1 as vf


class CalculatorToolset(vf.Toolset[vf.SharedToolsetConfig]):
    """One tool."""

    TOOL_PREFIX = ""

    @vf.tool
    def calculate(self, expression: str) -> str:
        """Apply one operation to two integers around +, - or *."""
        return arithmetic.calculate(expression)


if __name__ == "__main__":
    CalculatorToolset.run()
