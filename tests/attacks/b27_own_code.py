"""Read agentgym itself and what its environments ask: sources, tasks, answers, other packages."""

import os
import sys
from importlib.util import find_spec as find

from prelude import D, attempt, read, report


def find_spec(name):
    """Where it would be imported from."""
    spec = find(name)
    if spec is None:
        raise ImportError(name)
    return spec


for path in D["answers"]:
    attempt(f"read {path}", lambda path=path: len(read(path)))
for module in ("agentgym", "pydantic", "torch", "transformers"):
    attempt(f"find {module}", lambda module=module: find_spec(module).origin)
# Landlock lets a folder be listed with all beneath: at level 2 names of packages can be seen.
installed = D["site"] if D["level"] != 2 else []
for folder in (*installed, D["project"], os.path.join(D["project"], "envs")):
    attempt(f"list {folder}", lambda folder=folder: len(os.listdir(folder)) or 1 / 0)
names = sorted(name for name in sys.modules if "agentgym" in name)
if names:
    attempt("modules of the runner", lambda: names)
report()
