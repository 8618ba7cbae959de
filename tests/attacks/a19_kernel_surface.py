"""Reach parts of the kernel that code has no need of and that have had the most holes."""

import ctypes

from prelude import X86, done, in_child, reach, refused, report, syscall

attributes = ctypes.create_string_buffer(256)
CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWNET, CLONE_NEWPID = 0x10000000, 0x20000, 0x40000000, 0x20000000


def unshare(flags):
    syscall("unshare", flags)


for name, flags in {"user": CLONE_NEWUSER, "mount": CLONE_NEWNS, "network": CLONE_NEWNET}.items():
    status = in_child(unshare, flags)
    (refused if status else done)[f"namespace {name}"] = f"status {status}"


def cloned():
    pid = syscall("clone", CLONE_NEWUSER | 17, 0, 0, 0, 0)
    if pid == 0:
        import os

        os._exit(0)


if in_child(cloned) == 0:
    done["namespace by clone"] = "made"
reach("io_uring_setup", 8, attributes)
reach("bpf", 0, attributes, 48)
reach("keyctl", 0, -3, 0)
reach("add_key", b"user", b"x", b"y", 1, -2)
reach("userfaultfd", 1)
reach("perf_event_open", attributes, 0, -1, -1, 0)
reach("setns", -1, 0)
reach("fsopen", b"tmpfs", 0)
reach("open_tree", -100, b"/", 1)
reach("mount", b"none", b"/nowhere", b"tmpfs", 0, None)
reach("kexec_load", 0, 0, None, 0)
reach("finit_module", -1, b"", 0)
reach("open_by_handle_at", -1, None, 0)
reach("process_madvise", -1, None, 0, 0, 0)
reach("memfd_secret", 0)
if X86:
    reach("iopl", 3)
    reach("modify_ldt", 0, attributes, 16)
report()
