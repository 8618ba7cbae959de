"""Leave an image of memory on a disk: raise the limit, crash."""

import os
import resource

from prelude import report

hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
try:
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
except (OSError, ValueError):
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
pid = os.fork()
if pid == 0:
    os.abort()
dumped = os.WCOREDUMP(os.waitpid(pid, 0)[1])
files = [name for name in os.listdir(".") if name.startswith("core")]
for name in files:
    os.unlink(name)
report(succeeded=dumped or bool(files), dumped=dumped, files=files)
