"""What code in a sandbox may use up.

Processor time is what is budgeted: a wall clock also runs while other programs have the cores, so
its limit is only there for code that waits or sleeps.
"""

from dataclasses import dataclass, replace

from agentgym.errors import ConfigError

MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one call; those of memory, files and processes hold for the sandbox."""

    cpu_s: float = 5.0
    """Processor seconds of a process."""
    tree_cpu_s: float | None = None
    """Processor seconds of a process and all its children; twice `cpu_s` if left out."""
    wall_s: float | None = None
    """Seconds on the clock, without those spent waiting for a core; 3 x `cpu_s` + 2 if left out."""
    memory_mb: int = 512
    """Address space of a process."""
    tree_memory_mb: int = 768
    """Resident memory of all processes together."""
    processes: int = 32
    """Processes and threads at once."""
    disk_mb: int = 64
    """All files of the sandbox together."""
    file_mb: int = 16
    """The largest file."""
    open_files: int = 128
    """Descriptors of a process."""
    output_bytes: int = 65_536
    """Kept of stdout and of stderr each, half from the head and half from the tail."""
    flood_mb: int = 256
    """Output after which the code is stopped."""
    value_bytes: int = 1_048_576
    """Largest encoded return value."""

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value: float | None = object.__getattribute__(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ConfigError(f"limit {name}={value} must be positive and finite")

    @property
    def tree_cpu_limit_s(self) -> float:
        return 2 * self.cpu_s if self.tree_cpu_s is None else self.tree_cpu_s

    @property
    def wall_limit_s(self) -> float:
        return 3 * self.cpu_s + 2 if self.wall_s is None else self.wall_s

    def within(self, seconds: float) -> "Limits":
        """With a clock and processor time of at most so many seconds."""
        return replace(
            self,
            cpu_s=min(self.cpu_s, seconds),
            tree_cpu_s=min(self.tree_cpu_limit_s, seconds),
            wall_s=min(self.wall_limit_s, seconds),
        )
