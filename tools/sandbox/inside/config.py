"""What the runner is told once, before any foreign code is there."""

from typing import TypedDict


class LimitConfig(TypedDict):
    """`Limits` of the sandbox, by the same names."""

    cpu_s: float
    tree_cpu_s: float
    wall_s: float
    memory_mb: int
    tree_memory_mb: int
    processes: int
    disk_mb: int
    file_mb: int
    open_files: int
    output_bytes: int
    flood_mb: int
    value_bytes: int


class ConfineConfig(TypedDict):
    """What `inside.confine` puts around every child."""

    read: list[str]
    """Files and folders to be read and run, with all beneath."""
    listed: list[str]
    """Folders whose names may be listed, with all beneath."""
    use: list[str]
    """Devices to be read and written."""
    write: list[str]
    """Folders in which everything is allowed."""
    filter: str
    """The system call filter, in base64."""
    abi: int
    """Landlock's version to keep to."""
    user: int | None
    """Uid and gid to take on; `None` if that is done."""
    capability: int | None
    """Number of the one capability that is kept when the user changes."""


class RunnerConfig(TypedDict):
    """The runner's own settings; launchers give them in `Launch.config`."""

    workdir: str
    """Where files of the trajectory lie; exists, and is writable."""
    scratch: list[str]
    """Other folders the code can write into, emptied after every test: /tmp, /dev/shm."""
    remove: list[str]
    """Folders to delete when the sandbox ends."""
    import_paths: list[str]
    """Appended to `sys.path` of the code."""
    preload: list[str]
    """Modules imported before the first fork."""
    env: dict[str, str]
    """The code's environment."""
    owns_pids: bool
    """Whether every process in /proc but the runner belongs to the sandbox (own PID namespace)."""
    owns_uid: bool
    """Whether every process of the runner's uid belongs to the sandbox."""
    watch_disk: bool
    """Whether `disk_mb` must be watched, because no file system enforces it."""
    hide: list[str]
    """Modules to forget before foreign code runs."""
    confine: ConfineConfig | None
    """`None` where the launcher did all of it."""
    limits: LimitConfig
