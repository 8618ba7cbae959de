"""What attacks on a sandbox aim at: everything a trainer's machine has, made for them alone.

Every decoy tells on its own whether it was touched. Attacks learn where the decoys are and never
what they hold, so a secret in what they print was read, and nothing else can show it.
"""

import ctypes
import os
import secrets
import selectors
import shutil
import socket
import stat
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from decoy_process import NAME, DecoyProcess

PROJECT = Path(__file__).parents[2]
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.shmat.restype = ctypes.c_void_p


class Decoys:
    """Up between `__enter__` and `__exit__`; `damage` says what was done to them."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(8)
        self.secret = f"DECOY-{secrets.token_hex(16)}"
        self.missing: dict[str, str] = {}
        """Decoys that this machine does not let anyone make."""
        self._undo: list[Callable[[], Any]] = []

    def __enter__(self) -> "Decoys":
        os.environ["AGENTGYM_DECOY_KEY"] = self.secret
        self.facts: dict[str, Any] = {
            "session": os.getsid(0),
            "project": str(PROJECT),
            "real_home": os.path.expanduser("~"),
            "cwd": os.getcwd(),
            "decoy_name": NAME,
            "answers": [str(p) for p in _private_files()],
            "site": sorted({p for p in sys.path if p.endswith("-packages")}),
            "key": f"decoy-{self.token}",
            "key_id": 1,
        }
        self._make_key()  # first: processes and threads started later have it
        self.files = Files(self.secret, self.token)
        self.servers = Servers(self.secret, self.token, self.files.folders[0])
        self.files.settle()
        self.terminal = Terminal()
        self.process = DecoyProcess(self.secret, self.files.secrets[0])
        self.facts |= self.files.facts | self.servers.facts | self.terminal.facts
        self._optional("System V memory", self._make_shm)
        self._optional("System V queue", self._make_queue)
        self._optional("POSIX queue", self._make_mq)
        self._inherited = os.open(self.files.secrets[0], os.O_RDONLY)
        os.set_inheritable(self._inherited, True)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._inherited)
        for part in (self.process, self.servers, self.terminal, self.files):
            part.close()
        for undo in reversed(self._undo):
            undo()
        del os.environ["AGENTGYM_DECOY_KEY"]

    def known(self) -> dict[str, Any]:
        """What an attacker may know."""
        return self.facts | self.process.facts

    def damage(self) -> list[str]:
        """What was done to them since the last time; they are whole again afterwards."""
        parts = (self.files, self.servers, self.terminal, self.process)
        return [harm for part in parts for harm in part.damage()]

    def _optional(self, name: str, make: Callable[[], None]) -> None:
        try:
            make()
        except OSError as problem:
            self.missing[name] = str(problem)

    def _make_key(self) -> None:
        def make() -> None:
            _checked(LIBC.syscall, _number("keyctl"), 1, None)  # a session of keys of our own
            payload = self.secret.encode()
            name = self.facts["key"].encode()
            key = _checked(
                LIBC.syscall, _number("add_key"), b"user", name, payload, len(payload), -3
            )
            self.facts["key_id"] = key

        self._optional("key", make)

    def _make_shm(self) -> None:
        key = self.facts["shm_key"] = secrets.randbelow(2**30) + 1
        ident = _checked(LIBC.shmget, key, 4096, 0o1666)
        address = LIBC.shmat(ident, None, 0)
        ctypes.memmove(address, self.secret.encode(), len(self.secret))
        LIBC.shmdt(ctypes.c_void_p(address))
        self._undo.append(lambda: LIBC.shmctl(ident, 0, None))

    def _make_queue(self) -> None:
        key = self.facts["msg_key"] = secrets.randbelow(2**30) + 1
        ident = _checked(LIBC.msgget, key, 0o1666)
        message = (1).to_bytes(8, "little") + self.secret.encode()
        _checked(LIBC.msgsnd, ident, message, len(self.secret), 0)
        self._undo.append(lambda: LIBC.msgctl(ident, 0, None))

    def _make_mq(self) -> None:
        name = self.facts["mq"] = f"decoy-{self.token}"
        old = os.umask(0)
        try:
            queue = _checked(LIBC.mq_open, f"/{name}".encode(), os.O_CREAT | os.O_RDWR, 0o666, None)
        finally:
            os.umask(old)
        _checked(LIBC.mq_send, queue, self.secret.encode(), len(self.secret), 0)
        self._undo.append(lambda: LIBC.mq_unlink(f"/{name}".encode()))


def _private_files() -> list[Path]:
    """Of agentgym itself, and some of packages that are installed."""
    names = ("pydantic/__init__.py", "pip/__init__.py", "numpy/__init__.py")
    installed = [Path(folder, name) for folder in sys.path for name in names]
    ours = (PROJECT / "envs" / "calculator").glob("*.*")
    return [*ours, *(path for path in installed if path.is_file())]


def _checked(function: Callable[..., int], *args: Any) -> int:
    result = function(*args)
    if result < 0:
        raise OSError(ctypes.get_errno(), "not to be had")
    return result


def _number(name: str) -> int:
    x86, arm = {"keyctl": (250, 219), "add_key": (248, 217)}[name]
    return x86 if os.uname().machine == "x86_64" else arm


class Files:
    """Secrets that any user may read, and files that any user may write, in the usual places."""

    def __init__(self, secret: str, token: str) -> None:
        self._text = f"{secret}\n"
        self.folders = []
        for place in (None, "/var/tmp", os.path.expanduser("~"), "/dev/shm", os.getcwd()):
            if place is None or os.access(place, os.W_OK):
                self.folders.append(Path(tempfile.mkdtemp(prefix=".decoy-", dir=place)))
        self._shm = Path("/dev/shm") / f"decoy-{token}"
        self.secrets = [folder / "id_rsa" for folder in self.folders] + [self._shm]
        self.writable = [folder / "notes" for folder in self.folders]
        for folder in self.folders:
            folder.chmod(0o777)
        self._write()
        self.facts = {
            "files": [str(path) for path in self.secrets],
            "writable": [str(path) for path in self.writable],
            "folders": [str(path) for path in self.folders],
            "shm_name": self._shm.name,
            "suid": self._setuid_program(),
        }
        self.settle()

    def settle(self) -> None:
        """What they are like now is how they should be."""
        self._before = self._look()

    def damage(self) -> list[str]:
        now = self._look()
        harms = [
            f"{key}: {self._before.get(key)} -> {now.get(key)}"
            for key in {*now, *self._before}
            if now.get(key) != self._before.get(key)
        ]
        if harms:
            self._repair()
        return harms

    def close(self) -> None:
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)
        for path in self._shm.parent.glob(f"{self._shm.name}*"):
            path.unlink()

    def _write(self) -> None:
        for path in self.secrets:
            path.write_text(self._text)
            path.chmod(0o644)
        for path in self.writable:
            path.write_text("untouched")
            path.chmod(0o666)

    def _setuid_program(self) -> list[str]:
        program = shutil.which("id")
        if os.getuid() or program is None:
            return []
        copy = self.folders[0] / "id"
        shutil.copy(program, copy)
        copy.chmod(0o4755)
        return [str(copy)]

    def _repair(self) -> None:
        known = {*self.secrets, *self.writable, self.folders[0] / "id", self.folders[0] / "sock"}
        for folder in self.folders:
            folder.chmod(0o777)
            for path in folder.iterdir():
                if path in known or path.name.startswith("sock"):
                    continue
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        self._write()
        self.settle()

    def _look(self) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        for path in [*self.secrets, *self.writable]:
            seen[str(path)] = _state(path)
        for folder in self.folders:
            status = folder.stat()
            mode = stat.S_IMODE(status.st_mode)
            seen[str(folder)] = (mode, status.st_uid, sorted(os.listdir(folder)))
        return seen


def _state(path: Path) -> Any:
    try:
        status = path.lstat()
        attributes = [name for name in os.listxattr(path) if name.startswith("user.")]
        return (oct(status.st_mode), status.st_uid, status.st_nlink, status.st_mtime_ns,
                path.read_text(), attributes)  # fmt: skip
    except OSError as problem:
        return str(problem)


class Servers:
    """One thread that hands the secret to whoever connects, and remembers that it did."""

    def __init__(self, secret: str, token: str, folder: Path) -> None:
        self._secret = secret.encode()
        self._hits: list[str] = []
        self._selector = selectors.DefaultSelector()
        path = str(folder / "sock")
        tcp = self._listen("tcp", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))
        udp = self._listen("udp", socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0))
        self._listen("abstract", socket.AF_UNIX, socket.SOCK_STREAM, f"\0{token}")
        self._listen("abstract datagram", socket.AF_UNIX, socket.SOCK_DGRAM, f"\0{token}-d")
        self._listen("datagram", socket.AF_UNIX, socket.SOCK_DGRAM, path + "-dgram")
        self._listen("pathname", socket.AF_UNIX, socket.SOCK_STREAM, path)
        self._listen("seqpacket", socket.AF_UNIX, socket.SOCK_SEQPACKET, path + "-seq")
        for name in (path, path + "-seq", path + "-dgram"):
            Path(name).chmod(0o777)
        self.facts = {
            "tcp": tcp.getsockname()[1],
            "udp": udp.getsockname()[1],
            "abstract": token,
            "abstract_dgram": f"{token}-d",
            "unix": path,
            "unix_dgram": path + "-dgram",
            "unix_seq": path + "-seq",
        }
        self._open = True
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def damage(self) -> list[str]:
        hits, self._hits = self._hits, []
        return hits

    def close(self) -> None:
        self._open = False
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()

    def _listen(self, name: str, family: int, kind: int, address: Any) -> socket.socket:
        server = socket.socket(family, kind)
        server.bind(address)
        if kind != socket.SOCK_DGRAM:
            server.listen()
        server.setblocking(False)
        self._selector.register(server, selectors.EVENT_READ, name)
        return server

    def _serve(self) -> None:
        while self._open:
            for key, _ in self._selector.select(0.1):
                server = key.fileobj
                assert isinstance(server, socket.socket)
                with suppress(OSError):
                    self._answer(server)
                self._hits.append(f"{key.data} server was reached")

    def _answer(self, server: socket.socket) -> None:
        if server.type == socket.SOCK_DGRAM:
            _, address = server.recvfrom(100)
            if address:
                server.sendto(self._secret, address)
            return
        client, _ = server.accept()
        with client:
            client.settimeout(0.2)
            with suppress(TimeoutError):
                client.recv(100)
            client.sendall(self._secret)


class Terminal:
    """A terminal on which nobody but an attack writes or types."""

    def __init__(self) -> None:
        self.master, self._slave = os.openpty()
        name = os.ttyname(self._slave)
        with suppress(OSError):
            os.chmod(name, 0o666)
        os.set_blocking(self.master, False)
        self.facts = {"terminals": [name]}

    @property
    def slave(self) -> int:
        return self._slave

    def damage(self) -> list[str]:
        try:
            data = os.read(self.master, 1000)
        except BlockingIOError:
            return []
        return [f"on the terminal: {data!r}"] if data else []

    def close(self) -> None:
        os.close(self._slave)
        os.close(self.master)
