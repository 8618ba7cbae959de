"""Fuzzes every dialect, guided by coverage: `python tests/fuzz/fuzz_dialects.py --seconds 600`.

Needs atheris (the extra `fuzz`), which the tests do not: they replay the seeds. What is found
is written to `--findings`; a finding that was mended becomes a seed.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["agentgym.rendering"]):
    from dialect_checks import SEEDS, WORDS, check, dialect_of, turn_of


def main() -> None:
    """Fuzz for a while; the exit code tells whether something was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"))
    options = parser.parse_args()
    options.findings.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        corpus, dictionary = Path(folder) / "corpus", Path(folder) / "words.dict"
        corpus.mkdir()
        dictionary.write_text("\n".join(map(_quoted, WORDS)))
        flags = [
            f"-max_total_time={options.seconds}",
            f"-dict={dictionary}",
            f"-artifact_prefix={options.findings}/",
            *("-max_len=2048", "-timeout=30", "-rss_limit_mb=4096", "-print_final_stats=1"),
        ]
        atheris.Setup([sys.argv[0], *flags, str(corpus), str(SEEDS)], _one_input)
        atheris.Fuzz()


def _one_input(data: bytes) -> None:
    check(dialect_of(data), turn_of(data))


def _quoted(word: str) -> str:
    return '"' + "".join(f"\\x{byte:02x}" for byte in word.encode()) + '"'


if __name__ == "__main__":
    main()
