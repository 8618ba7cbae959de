"""Build a tree of folders too deep to be listed or deleted by recursion."""

import os

from prelude import D, report, until

if D["home"]:
    os.chdir(os.environ["HOME"])
depth = 0
going = until(3)
problem = ""
try:
    while depth < 2500 and going():
        os.mkdir("d" * 100)
        os.chdir("d" * 100)
        depth += 1
    os.mkdir("closed")
    os.chmod("closed", 0)
except OSError as error:
    problem = str(error)
report(succeeded=False, depth=depth, problem=problem)
