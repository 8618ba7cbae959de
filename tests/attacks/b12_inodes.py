"""Use up the inodes, and with them memory of the kernel, with empty files and hard links."""

import os

from prelude import report, until

WANTED = 60_000
made = 0
going = until(8)
problem = ""
try:
    while made < WANTED and going():
        if made % 1000 == 0:
            os.mkdir(f"many-{made}")
            if made % 10_000 == 0:
                os.chdir(f"many-{made}")
        os.close(os.open(f"{made:060}", os.O_CREAT | os.O_WRONLY))
        made += 1
except OSError as error:
    problem = str(error)
report(succeeded=made >= WANTED, made=made, problem=problem)
