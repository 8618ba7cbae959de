"""`python -m agentgym`, for launchers such as `torchrun -m agentgym train`."""

from agentgym.cli import script

if __name__ == "__main__":
    script()
