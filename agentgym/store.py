"""The folder of a run: what a later reader, a resumed run or a plot needs, valid at every moment.

Metrics grow by whole lines, each flushed; everything else is written beside its place and renamed.
A run that is killed therefore leaves at most one cut line, which is removed when it goes on.
"""

import json
import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import ValidationError

from agentgym.checkpoints import checkpoints_in, has_state, newest_checkpoint
from agentgym.errors import ConfigError, UsageError
from agentgym.trajectory import RolloutOutput, to_jsonl

_UNSTARTED = "unstarted-{}"


class StorageError(UsageError):
    """A file of the run could not be written: the disk is full, or the folder is not writable."""


@contextmanager
def storing(path: Path) -> Iterator[None]:
    """Turn the operating system's refusal to write into one line that names the file."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(f"cannot write {str(path)!r}: {reason}") from error


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new content that takes a file's place as a whole, or leaves it as it was.

    Raises:
        StorageError: it could not be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with storing(path):
        try:
            with temporary.open("wb") as file:
                yield file
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file as a whole, or leave it as it was.

    Raises:
        StorageError: it could not be written.
    """
    with replacing(path) as file:
        file.write(content)


def append(path: Path, content: bytes) -> None:
    """Append the whole content, or nothing.

    Raises:
        StorageError: it could not be written.
    """
    with storing(path), path.open("ab", buffering=0) as file:
        start = file.tell()
        try:
            written = file.write(content)
            while written < len(content):
                written += file.write(content[written:])
        except OSError:
            file.truncate(start)
            raise


def drop_cut_line(path: Path) -> None:
    """Remove an unfinished last line, as a killed run leaves it."""
    with storing(path), path.open("r+b") as file:
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)


def go_on_with(path: Path) -> Iterator[RolloutOutput]:
    """Trajectories of a file that will be appended to; its end is mended once all were taken.

    A cut last line is removed if trajectories stand before it; a whole one gets its line break.

    Raises:
        ConfigError: a line is no trajectory; the file stays as it is.
        StorageError: the file cannot be read or mended.
    """
    size = 0
    with storing(path), path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                output = RolloutOutput.model_validate_json(line)
            except ValidationError as error:
                if not size or line.endswith(b"\n"):
                    raise ConfigError(
                        f"{str(path)!r} cannot be gone on with: line {number} is no trajectory; "
                        "give another --out"
                    ) from error
                os.truncate(path, size)
                return
            yield output
            size += len(line)
            if not line.endswith(b"\n"):
                append(path, b"\n")
                return


def drop_trajectories(path: Path, is_dropped: Callable[[RolloutOutput], bool]) -> None:
    """Take lines out of a file that holds nothing but whole ones; the file is replaced at once.

    Raises:
        StorageError: it could not be written.
    """
    with replacing(path) as new, path.open("rb") as old:
        kept = (line for line in old if not is_dropped(RolloutOutput.model_validate_json(line)))
        new.writelines(kept)


@contextmanager
def undo_folders(path: Path) -> Iterator[None]:
    """If the block fails, remove the empty folders that it made on the way to `path`."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        yield
    except BaseException:
        for folder in missing:
            with suppress(OSError):
                folder.rmdir()
        raise


@contextmanager
def first_free(folders: Iterable[Path]) -> Iterator[Path]:
    """Make the first folder that is not there; if the block fails, it is removed if empty.

    Of processes that ask for the same folders at once, each gets another one.

    Raises:
        StorageError: it could not be made.
    """
    for folder in folders:
        with undo_folders(folder.parent):
            with storing(folder):
                try:
                    folder.mkdir(parents=True)
                except FileExistsError:
                    continue
            try:
                yield folder
            except BaseException:
                with suppress(OSError):
                    folder.rmdir()
                raise
        return


class RunFolder:
    """One run on disk.

    `config.yaml`, `metrics.jsonl` (a line per step), `trajectories/` (a file per step and per
    evaluation), `checkpoints/`, `reward.png` and `summary.json`; `unstarted-N/` if a run was
    evaluated here and ended before its first step.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.metrics = path / "metrics.jsonl"
        self.trajectories = path / "trajectories"
        self.checkpoints = path / "checkpoints"
        self.summary = path / "summary.json"
        self.plot = path / "reward.png"

    def refuse_unusable(self) -> None:
        """Raise a `ConfigError` if something is there already, or nothing can be put there."""
        is_free = not self.path.exists() or (
            self.path.is_dir() and (not any(self.path.iterdir()) or self._is_unstarted)
        )
        if not is_free:
            raise ConfigError(
                f"the run folder {str(self.path)!r} is not empty: choose another --name or "
                "--run-dir, or continue it with --resume"
            )
        above = (self.path.absolute(), *self.path.absolute().parents)
        parent = next(folder for folder in above if folder.exists())
        if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
            raise ConfigError(
                f"the run folder {str(self.path)!r} cannot be made: {str(parent)!r} is no folder "
                "that can be written to"
            )

    def create(self, config_yaml: str) -> None:
        """Make the folder; the config is the first file in it.

        What a run evaluated here that ended before its first step is put aside.
        """
        with storing(self.path):
            if self._is_unstarted:
                self._put_aside()
            self.trajectories.mkdir(parents=True, exist_ok=True)
            self.checkpoints.mkdir(exist_ok=True)
        write_atomically(self.config, config_yaml.encode())

    def newest_checkpoint(self, *, quiet: bool = False) -> Path:
        """The checkpoint to resume from; see `agentgym.checkpoints`.

        Raises:
            ConfigError: there is none.
        """
        return newest_checkpoint(self.checkpoints, quiet=quiet)

    @property
    def _is_unstarted(self) -> bool:
        """Whether all that is there is a run that ended before its first step."""
        if not self.summary.is_file():
            return False
        try:
            summary = self.read_summary()
        except ValueError:
            return False
        return (
            {*self.path.iterdir()} <= {*self._parts, *self.path.glob(_UNSTARTED.format("*"))}
            and isinstance(summary, dict)
            and summary.get("ended") is True
            and summary.get("num_steps") == 0
            and not any(self.checkpoints.glob("checkpoint-*"))
            and not (self.metrics.exists() and self.metrics.stat().st_size)
        )

    @property
    def _parts(self) -> tuple[Path, ...]:
        """Everything that one run makes."""
        files = (self.config, self.metrics, self.summary, self.plot)
        return (*files, self.trajectories, self.checkpoints)

    def _put_aside(self) -> None:
        """Move a run that never began out of the way; delete it if it has played nothing."""
        folders = (self.path / _UNSTARTED.format(number) for number in count(1))
        with first_free(folders) as aside:
            for part in filter(Path.exists, self._parts):
                part.rename(aside / part.name)
        if not any(aside.joinpath(self.trajectories.name).glob("*")):
            shutil.rmtree(aside, ignore_errors=True)

    def drop_incomplete_checkpoints(self) -> None:
        """Remove what a run left that could not finish writing."""
        for path in checkpoints_in(self.checkpoints):
            if not has_state(path):
                shutil.rmtree(path, ignore_errors=True)

    def rewind(self, step: int) -> None:
        """Forget what was recorded after `step`, since it will be produced again."""
        if self.metrics.exists():
            drop_cut_line(self.metrics)
            kept = [json.dumps(row) for row in self.read_metrics() if row["step"] <= step]
            write_atomically(self.metrics, "".join(line + "\n" for line in kept).encode())
        for path in self.trajectories.glob("*.jsonl"):
            if _is_after(step, path):
                path.unlink()

    def append_metrics(self, row: Mapping[str, Any]) -> None:
        """Add a line; `row` has a `step`."""
        append(self.metrics, (_to_json(row) + "\n").encode())

    def read_metrics(self) -> list[dict[str, Any]]:
        """Every line, in order."""
        if not self.metrics.exists():
            return []
        return [json.loads(line) for line in self.metrics.read_text("utf-8").splitlines()]

    def write_trajectories(self, name: str, outputs: Iterable[RolloutOutput]) -> None:
        """Replace `trajectories/NAME.jsonl`."""
        write_atomically(self.trajectories / f"{name}.jsonl", to_jsonl(outputs))

    def read_summary(self) -> dict[str, Any]:
        """What `write_summary` wrote; empty if it never did."""
        if not self.summary.exists():
            return {}
        summary: dict[str, Any] = json.loads(self.summary.read_text("utf-8"))
        return summary

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Replace `summary.json`."""
        write_atomically(self.summary, (_to_json(summary, indent=2) + "\n").encode())


def _is_after(step: int, path: Path) -> bool:
    """Whether trajectories were played after a step: of a later one, or when all was over."""
    kind, _, number = path.name.partition(".")[0].rpartition("-")
    return kind == "eval-after" or (number.isdecimal() and int(number) > step)


def step_name(step: int) -> str:
    """Name of a training step's trajectories."""
    return f"step-{step:06d}"


def _to_json(row: Mapping[str, Any], *, indent: int | None = None) -> str:
    """JSON knows no NaN: a number that is none is `null`."""
    numbers = {key: value for key, value in row.items() if isinstance(value, float)}
    unknown = dict.fromkeys(key for key, value in numbers.items() if not math.isfinite(value))
    return json.dumps({**row, **unknown}, indent=indent, allow_nan=False)
