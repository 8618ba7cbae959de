"""`python -m agentgym`, for launchers such as `torchrun -m agentgym train`."""

import sys

from agentgym.cli import main

if __name__ == "__main__":
    sys.exit(main())
