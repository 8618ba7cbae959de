"""Read agentgym itself and what its environments ask: sources, tasks, answers, other packages."""

import os
import sys

from prelude import D, attempt, read, report

for path in D["answers"]:
    attempt(f"read {path}", lambda path=path: len(read(path)))
for module in ("agentgym", "pydantic", "torch", "transformers"):
    attempt(f"import {module}", lambda module=module: __import__(module).__file__)
# Landlock lets a folder be listed with all beneath: at level 2 names of packages can be seen.
installed = D["site"] if D["level"] != 2 else []
for folder in (*installed, D["project"], os.path.join(D["project"], "envs")):
    attempt(f"list {folder}", lambda folder=folder: len(os.listdir(folder)) or 1 / 0)
names = sorted(name for name in sys.modules if "agentgym" in name)
if names:
    attempt("modules of the runner", lambda: names)
report()
