"""All of vLLM on this machine: its tests, then training through a server and in process.

    python benchmarks/gpu_vllm.py                                      # on a GPU
    python benchmarks/gpu_vllm.py --model Qwen/Qwen2.5-0.5B-Instruct   # a folder or a hub id
    python benchmarks/gpu_vllm.py --device cpu --model tiny --steps 2 --dtype float32 --tests none

The tests run in `--dtype`, with tolerances to match. Then the same training twice, by the commands
that users type: `agentgym serve` with `agentgym train --server-url`, and `agentgym train --engine
vllm`. On several GPUs the server has the last one, once with weights through shared memory and once
over NCCL. Printed are sampled tokens per second of the loop and of whole steps, without the first
step, which warms up; seconds to bring the engine to new weights; and by how much the engine's
log-probabilities differ from the trainer's, in probes and in what was trained on.

The default model, SmolLM2-135M, comes out of a package (`examples/smollm2.py`) and solves no task:
its run shows that everything works and how fast, not that it learns. Exit code 1 if a part failed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NUM_TASKS, GROUP_SIZE = 8, 8
_ON_CPU = ["--kv-cache-gb", "0.25"]
FIGURES = ("rollout tok/s", "step tok/s", "sync s", "probe max", "probe mean", "trained max")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What runs where."""

    on_gpu: bool
    num_gpus: int

    def environment(self, *, gpu: int) -> dict[str, str]:
        """Of a process that has one GPU, or none."""
        visible = _visible_gpus(self.num_gpus)
        return os.environ | {"CUDA_VISIBLE_DEVICES": visible[gpu] if self.on_gpu else ""}


def _visible_gpus(num: int) -> list[str]:
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    return given.split(",") if given else list(map(str, range(num)))


def look(device: str) -> Machine:
    """The machine, and what is installed on it, printed."""
    import torch
    import vllm

    num_gpus = torch.cuda.device_count() if device != "cpu" else 0
    if device == "cuda" and not num_gpus:
        raise SystemExit("--device cuda: torch sees no GPU; --device cpu is a smoke test")
    names = {torch.cuda.get_device_name(number) for number in range(num_gpus)}
    print(f"torch {torch.__version__}, vLLM {vllm.__version__}, {num_gpus} GPUs {names or ''}")
    return Machine(on_gpu=num_gpus > 0, num_gpus=num_gpus)


def model_folder(name: str, dtype: str, folder: Path) -> str:
    """The model, stored in what engines are to compute in."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from agentgym.trainer.tiny_policy import PATH

    if name == "smollm2":
        unpacked = folder / "smollm2"
        subprocess.run([sys.executable, ROOT / "examples/smollm2.py", unpacked], check=True)
        name = str(unpacked)
    source = str(PATH) if name == "tiny" else name
    out = folder / f"{Path(name).name}-{dtype}"
    model: Any = AutoModelForCausalLM.from_pretrained(source, dtype=vars(torch)[dtype])
    model.save_pretrained(out)
    AutoTokenizer.from_pretrained(source).save_pretrained(out)
    return str(out)


def run_tests(selection: str, dtype: str, machine: Machine) -> bool:
    """Whether the tests that need vLLM pass."""
    environment = machine.environment(gpu=0) | {"AGENTGYM_VLLM_DTYPE": dtype}
    command = [sys.executable, "-m", "pytest", "-q", "-m", selection, "tests/engines/vllm"]
    return subprocess.run(command, cwd=ROOT, env=environment).returncode == 0


@contextmanager
def serving(
    model: str, transfer: str, options: argparse.Namespace, machine: Machine
) -> Iterator[str]:
    """A server of the model; its address."""
    share = ["--", "--gpu-memory-utilization", str(options.memory)]
    command = [
        *(sys.executable, "-m", "agentgym", "serve", "--model", model),
        *("--port", str(options.port), "--dtype", options.dtype, "--transfer", transfer),
        *(share if machine.on_gpu else _ON_CPU),
    ]
    environment = machine.environment(gpu=-1)
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        ready = process.stdout.readline()  # comes when it is ready, or when it has ended
        if not ready.startswith("serving"):
            raise SystemExit(f"the server did not start: exit code {process.wait()}")
        yield f"http://127.0.0.1:{options.port}"
    finally:
        process.terminate()
        process.wait(60)


def train(
    model: str, run: Path, engine: list[str], options: argparse.Namespace, machine: Machine
) -> dict[str, float]:
    """Figures of a run."""
    command = [
        *(sys.executable, "-m", "agentgym", "train", "--env", options.env, "--model", model),
        *("--steps", str(options.steps), "--num-tasks", str(NUM_TASKS)),
        *("--group-size", str(GROUP_SIZE), "--probe-every", "5", "--eval-tasks", "0"),
        *("--run-dir", str(run), *engine, *options.train_flags),
    ]
    subprocess.run(command, env=machine.environment(gpu=0), check=True)
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return figures([row for row in map(json.loads, lines) if "reward" in row])


def figures(steps: list[Mapping[str, Any]]) -> dict[str, float]:
    """Means over steps; probes and differences are the largest."""
    warm = steps[1:] or steps
    tokens = sum(NUM_TASKS * GROUP_SIZE * step["completions/mean_length"] for step in warm)
    values = (
        tokens / sum(step["time/rollout"] for step in warm),
        tokens / sum(step["step_seconds"] for step in warm),
        mean(step["time/sync"] for step in warm),
        *(max(step.get(f"sync/probe_{kind}", 0.0) for step in steps) for kind in ("max", "mean")),
        max(step.get("sampling/logp_diff_max", 0.0) for step in steps),
    )
    return dict(zip(FIGURES, values, strict=True))


def runs(
    model: str, folder: Path, options: argparse.Namespace, machine: Machine
) -> Iterator[tuple[str, dict[str, float]]]:
    """Every mode, with its figures."""
    transfers = options.transfers or (["shm", "nccl"] if machine.num_gpus > 1 else ["shm"])
    for transfer in transfers:
        with serving(model, transfer, options, machine) as url:
            yield (
                f"server, {transfer}",
                train(model, folder / f"run-{transfer}", ["--server-url", url], options, machine),
            )
    share = ["--gpu-memory-utilization", str(options.memory)]
    engine = ["--engine", "vllm", *(share if machine.on_gpu else _ON_CPU)]
    yield "in process", train(model, folder / "run-in-process", engine, options, machine)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2", help="smollm2, tiny, a folder or a hub id")
    parser.add_argument("--env", default="calculator")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16", "float32"])
    parser.add_argument("--device", default="auto", choices=["auto", "cuda", "cpu"])
    parser.add_argument("--tests", default="vllm", help="pytest's -m; none = no tests")
    parser.add_argument("--transfers", nargs="*", choices=["shm", "gloo", "nccl"])
    parser.add_argument("--memory", type=float, default=0.4, help="vLLM's share of a GPU's memory")
    parser.add_argument("--port", type=int, default=8765)
    options, flags = parser.parse_known_args()
    options.train_flags = flags
    return options


def main() -> None:
    """Run all, print figures."""
    options = parse()
    machine = look(options.device)
    passed = options.tests == "none" or run_tests(options.tests, options.dtype, machine)
    with tempfile.TemporaryDirectory(prefix="gpu-vllm-") as temporary:
        model = model_folder(options.model, options.dtype, Path(temporary))
        rows = {}
        for name, found in runs(model, Path(temporary), options, machine):
            rows[name] = found
            print(f"{name}: {found}", flush=True)
    print(f"\n{options.model} in {options.dtype}, {options.steps} steps of {options.env}")
    print(f"{'':>14} " + " ".join(f"{title:>14}" for title in FIGURES))
    for name, found in rows.items():
        print(f"{name:>14} " + " ".join(f"{value:>14.4g}" for value in found.values()))
    if not passed:
        raise SystemExit("tests failed; see above")


if __name__ == "__main__":
    main()
