"""Open sockets that are not of the usual families: hypervisor, kernel, raw, crypto."""

import socket

from prelude import D, attempt, report

KINDS = {
    "vsock": (40, socket.SOCK_STREAM, 0),
    "vsock datagram": (40, socket.SOCK_DGRAM, 0),
    "netlink route": (16, socket.SOCK_RAW, 0),
    "netlink audit": (16, socket.SOCK_RAW, 9),
    "netlink uevent": (16, socket.SOCK_RAW, 15),
    "packet": (17, socket.SOCK_RAW, 0x0300),
    "raw": (2, socket.SOCK_RAW, 1),
    "ping": (2, socket.SOCK_DGRAM, 1),
    "kernel crypto": (38, socket.SOCK_SEQPACKET, 0),
    "xdp": (44, socket.SOCK_RAW, 0),
    "bluetooth": (31, socket.SOCK_RAW, 1),
    "can": (29, socket.SOCK_RAW, 1),
    "tipc": (30, socket.SOCK_RDM, 0),
    "rds": (21, socket.SOCK_SEQPACKET, 0),
    "key": (15, socket.SOCK_RAW, 2),
    "inet": (2, socket.SOCK_STREAM, 0),
    "inet6": (10, socket.SOCK_DGRAM, 0),
    "sctp": (2, socket.SOCK_STREAM, 132),
    "mptcp": (2, socket.SOCK_STREAM, 262),
}
OWN_NETWORK = ("inet", "inet6", "mptcp")
for name, kind in KINDS.items():
    if name in OWN_NETWORK and D["level"] > 2:
        continue
    attempt(name, lambda kind=kind: socket.socket(*kind).fileno())
report()
