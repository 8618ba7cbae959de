"""Read agentgym itself and what its environments ask: sources, tasks, answers, other packages."""

import os
import sys

from prelude import D, attempt, leak, read, report

for path in D["answers"]:
    attempt(f"read {path}", lambda path=path: len(read(path)))
for module in ("agentgym", "pydantic", "torch", "transformers"):
    attempt(f"import {module}", lambda module=module: __import__(module).__file__)
for folder in (*D["site"], D["project"], os.path.join(D["project"], "envs")):
    attempt(f"list {folder}", lambda folder=folder: len(os.listdir(folder)))
leak("another module's state", lambda: repr({n: vars(m) for n, m in list(sys.modules.items())}))
names = sorted(n for n in sys.modules if "agentgym" in n or "runner" in n)
if names:
    attempt("modules of the runner", lambda: names)
frame = sys._getframe()
outer = []
while frame.f_back is not None:
    frame = frame.f_back
    outer.append(frame.f_code.co_filename)
report()
