"""Print 300 MB on stdout, and as much on stderr; less where nothing would stop it."""

import os

from prelude import D, report

block = b"0123456789abcdef" * 65536
size_mb = 300 if D["walled"] else 30
for _ in range(size_mb):
    os.write(2, block)
    os.write(1, block)
report(succeeded=True, mb=2 * size_mb)
