"""Print 300 MB on stdout, and as much on stderr."""

import os

from prelude import report

block = b"0123456789abcdef" * 65536
for _ in range(300):
    os.write(2, block)
    os.write(1, block)
report(succeeded=True, mb=600)
