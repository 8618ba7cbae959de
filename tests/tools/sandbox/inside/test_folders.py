"""Foreign folders are emptied, whatever was put there."""

import os
from pathlib import Path

from agentgym.tools.sandbox.inside.folders import empty, remove


def test_links_lead_nowhere(tmp_path: Path) -> None:
    """What they point to stays."""
    kept, folder = tmp_path / "kept", tmp_path / "folder"
    (kept / "deep").mkdir(parents=True)
    (kept / "file").write_text("x")
    folder.mkdir()
    (folder / "a").symlink_to(kept)
    (folder / "b").mkdir()
    (folder / "b" / "c").symlink_to(kept / "file")
    (folder / "b" / "gone").symlink_to("/nowhere")

    empty(str(folder))

    assert not list(folder.iterdir())
    assert (kept / "file").read_text() == "x"
    assert (kept / "deep").is_dir()


def test_depth_does_not_matter(tmp_path: Path) -> None:
    """A path may be longer than the kernel takes, and deeper than Python recurses."""
    folder = tmp_path / "folder"
    folder.mkdir()
    fd = os.open(folder, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d" * 20, dir_fd=fd)
        inner = os.open("d" * 20, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)

    remove(str(folder))

    assert not folder.exists()


def test_modes_and_names_do_not_matter(tmp_path: Path) -> None:
    """Closed folders, pipes, and names like those this makes itself."""
    folder = tmp_path / "folder"
    for name in ("closed", ".lifted-0", ".lifted-1"):
        (folder / name / "in").mkdir(parents=True)
        (folder / name / "in" / ".lifted-2").write_text("x")
        (folder / name).chmod(0)
    os.mkfifo(folder / "pipe")

    remove(str(folder))
    remove(str(folder))

    assert not folder.exists()
