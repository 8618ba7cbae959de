"""Talk to servers of the host: TCP and UDP on loopback, abstract and pathname unix sockets."""

import socket

from prelude import D, attempt, leak, report


def ask(family, kind, address):
    with socket.socket(family, kind) as sock:
        sock.settimeout(1)
        sock.connect(address)
        sock.send(D["mark"].encode())
        return sock.recv(200)


leak("tcp", ask, socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", D["tcp"]))
leak("tcp, mapped", ask, socket.AF_INET6, socket.SOCK_STREAM, ("::ffff:127.0.0.1", D["tcp"]))
leak("udp", ask, socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", D["udp"]))
leak("abstract", ask, socket.AF_UNIX, socket.SOCK_STREAM, "\0" + D["abstract"])
leak("pathname", ask, socket.AF_UNIX, socket.SOCK_STREAM, D["unix"])
leak("pathname, seqpacket", ask, socket.AF_UNIX, socket.SOCK_SEQPACKET, D["unix_seq"])


def fast_open():
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.sendto(b"x", 0x20000000, ("127.0.0.1", D["tcp"]))
        return sock.recv(200)


def through_pair(address):
    """A socket that was made by socketpair, connected anew."""
    left, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    left.connect(address)
    left.send(D["mark"].encode())
    return "sent"


leak("tcp fast open", fast_open)
attempt("socketpair to an abstract socket", through_pair, "\0" + D["abstract_dgram"])
attempt("socketpair to a pathname socket", through_pair, D["unix_dgram"])
attempt("resolve", lambda: (socket.getaddrinfo("example.com", 80)[0] and None) or 1 / 0)
report()
