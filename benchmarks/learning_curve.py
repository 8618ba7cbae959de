"""How fast the embedded policy learns the calculator: reward against step and time, by seed.

    python benchmarks/learning_curve.py --seeds 0 1 2 3 4

Trains once per seed with the defaults of `agentgym train` and prints, every ten steps, the mean
reward of the seeds and the seconds of training so far, then the held-out evaluations before and
after. Figures depend on the machine: run it where nothing else runs.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

EVERY = 10
EVALUATIONS = ("reward_before", "reward_after", "greedy_before", "greedy_after")


def train(seed: int, folder: Path, flags: list[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The metrics of every step, and the summary."""
    run = folder / f"seed-{seed}"
    command = [sys.executable, "-m", "agentgym", "train", "--env", "calculator"]
    subprocess.run(
        [*command, "--seed", str(seed), "--run-dir", str(run), *flags],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    lines = (run / "metrics.jsonl").read_text().splitlines()
    steps = [record for record in map(json.loads, lines) if "reward" in record]
    return steps, json.loads((run / "summary.json").read_text())


def print_curve(runs: list[list[dict[str, Any]]]) -> None:
    """Mean over the seeds of reward, and of the seconds since the start."""
    print(f"{'step':>5} {'reward':>7} {'lowest':>7} {'seconds':>8}")
    for step in range(1, min(map(len, runs)) + 1):
        if step % EVERY and step != 1:
            continue
        rewards = [run[step - 1]["reward"] for run in runs]
        seconds = [sum(record["step_seconds"] for record in run[:step]) for run in runs]
        print(f"{step:>5} {mean(rewards):>7.3f} {min(rewards):>7.3f} {mean(seconds):>8.1f}")


def print_evaluations(summaries: list[dict[str, Any]]) -> None:
    print(f"\n{'seed':>5} " + " ".join(f"{name:>13}" for name in EVALUATIONS) + f" {'seconds':>8}")
    rows = [[s[f"eval_{name}"] for name in EVALUATIONS] + [s["train_seconds"]] for s in summaries]
    for summary, row in zip(summaries, rows, strict=True):
        print_row(str(summary["seed"]), row)
    print_row("mean", [mean(column) for column in zip(*rows, strict=True)])


def print_row(name: str, row: list[float]) -> None:
    print(f"{name:>5} " + " ".join(f"{value:>13.3f}" for value in row[:-1]) + f" {row[-1]:>8.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options, flags = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        results = [train(seed, Path(folder), flags) for seed in options.seeds]
    print_curve([steps for steps, _ in results])
    print_evaluations([summary for _, summary in results])


if __name__ == "__main__":
    main()
