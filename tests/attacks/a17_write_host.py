"""Write files of the host: decoys that anyone may write, and switches of the kernel."""

import os

from prelude import D, attempt, report

COUNTED = (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND)


def write(path):
    fd = os.open(path, os.O_WRONLY)
    return os.write(fd, b"written by the attack")


def opened(path, flags):
    os.close(os.open(path, flags))
    return "opened"


for path in D["writable"]:
    attempt(f"write {path}", write, path)
    attempt(f"truncate {path}", os.truncate, path, 0)
    attempt(f"rename {path}", os.rename, path, path + "-moved")
    attempt(f"delete {path}", os.unlink, path)
for folder in D["folders"]:
    name = os.path.join(folder, D["mark"])
    attempt(f"create {name}", opened, name, os.O_CREAT | os.O_WRONLY)
    attempt(f"mkdir {name}-d", os.mkdir, name + "-d")
    attempt(f"symlink {name}-s", os.symlink, "/etc/passwd", name + "-s")
    attempt(f"fifo {name}-f", os.mkfifo, name + "-f")
SWITCHES = ("kernel/core_pattern", "kernel/modprobe", "vm/overcommit_memory", "fs/suid_dumpable")
for switch in SWITCHES:
    attempt(f"open {switch}", opened, "/proc/sys/" + switch, os.O_WRONLY)
for path in (
    "/proc/sysrq-trigger",
    f"/proc/{D['pid']}/oom_score_adj",
    "/sys/fs/cgroup/cgroup.procs",
    "/sys/fs/cgroup/memory/cgroup.procs",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/etc/passwd",
    "/etc/ld.so.cache",
    "/usr/bin/env",
):
    attempt(f"open {path}", opened, path, os.O_WRONLY)
report()
