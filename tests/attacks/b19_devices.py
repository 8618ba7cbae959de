"""Open devices and what /sys shows of the hardware; make devices."""

import os
import stat

from prelude import D, attempt, report


def opened(path):
    os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    return "opened"


for name in ("mem", "kmsg", "vda", "sda", "nvme0n1", "loop-control", "kvm", "fuse", "vhost-vsock",
             "net/tun", "hwrng", "snapshot", "nvidiactl", "dri/card0", "vcs", "port"):  # fmt: skip
    attempt(f"/dev/{name}", opened, f"/dev/{name}")
for path in ("/sys/kernel", "/sys/class/dmi/id/product_name", "/sys/fs/cgroup", "/sys/block",
             "/sys/kernel/debug", "/sys/firmware", "/boot"):  # fmt: skip
    attempt(path, lambda path=path: os.listdir(path) if os.path.isdir(path) else open(path).read())
for kind, name in {stat.S_IFBLK: "block", stat.S_IFCHR: "char"}.items():
    path = f"{D['mark']}-{name}"
    attempt(f"mknod {name}", os.mknod, path, kind | 0o600, os.makedev(1, 3))
    if os.path.lexists(path):
        os.unlink(path)
report()
