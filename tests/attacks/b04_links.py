"""Leave links to files of the host where the host reads: symbolic, hard, through /proc, a swap."""

import os

from prelude import D, attempt, leak, read, report

secret = D["files"][0]
os.chdir(os.environ["HOME"])
for name, target in {
    "link": secret,
    "link-up": os.path.relpath(secret),
    "link-proc": f"/proc/{D['pid']}/fd/{D['secret_fd']}",
    "link-dir": os.path.dirname(secret),
    "link-root": "/proc/self/root",
}.items():
    if not os.path.lexists(name):
        os.symlink(target, name)
attempt("hard link", os.link, secret, "hard")
attempt("hard link over /proc", lambda: os.link(f"/proc/self/fd/{os.open(secret, 0)}", "hard2"))
leak("through the link", read, "link")
if not os.path.lexists("fifo"):
    os.mkfifo("fifo")
with open("sparse", "wb") as file:
    file.truncate(8 * 2**20)
if not os.path.exists("plain"):
    with open("plain", "w") as file:
        file.write("nothing\n")
report()
