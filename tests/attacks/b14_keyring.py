"""Read keys that the kernel keeps for the host's session or user."""

import ctypes

from prelude import D, attempt, leak, report, syscall

buffer = ctypes.create_string_buffer(256)


def requested():
    key = syscall("request_key", b"user", D["key"].encode(), None, 0)
    size = syscall("keyctl", 11, key, buffer, 256, 0)
    return buffer.raw[:size]


def by_id():
    size = syscall("keyctl", 11, D["key_id"], buffer, 256, 0)
    return buffer.raw[:size]


leak("request_key", requested)
leak("by its id", by_id)
attempt("new key", syscall, "add_key", b"user", b"attack", b"x", 1, -3)
report()
