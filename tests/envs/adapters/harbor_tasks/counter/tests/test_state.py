import subprocess
import sys
from pathlib import Path


def test_lines_are_counted(tmp_path):
    for text, count in (("", 0), ("a\nb\n", 2), ("a\nb", 2)):
        (tmp_path / "text").write_text(text)
        command = [sys.executable, "/app/counter.py", str(tmp_path / "text")]
        assert subprocess.run(command, capture_output=True, text=True).stdout.strip() == str(count)


def test_it_is_there():
    assert Path("/app/counter.py").is_file()
