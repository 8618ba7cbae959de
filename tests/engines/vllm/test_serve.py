"""`agentgym serve`: what it refuses, who may talk to the server, and how it ends."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from vllm_kit import START_S, tiny_model

from agentgym.cli import main
from agentgym.commands.serve import ServeConfig
from agentgym.config import load
from agentgym.engines.vllm.guard import Guard
from agentgym.engines.vllm.ports import free_port, refuse_taken_port
from agentgym.engines.vllm.server_command import ServerSettings, server_argv, server_environment
from agentgym.errors import ConfigError

ENDPOINTS = (
    "/v1/models",
    "/inference/v1/generate",
    "/pause",
    "/resume",
    "/start_weight_update",
    "/update_weights",
    "/finish_weight_update",
    "/init_weight_transfer_engine",
    "/collective_rpc",
    "/reset_prefix_cache",
    "/server_info",
    "/docs",
    "/metrics",
    "/health/../collective_rpc",
)


def test_words_after_the_dashes_are_vllms() -> None:
    """As they are, whatever they look like."""
    settings = load(ServeConfig, ["--port", "9000", "--", "--tensor_parallel-size", "2", "--port"])

    assert settings.port == 9000
    assert settings.vllm_args == ("--tensor_parallel-size", "2", "--port")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "/no/such/folder"], "the model folder '/no/such/folder' does not exist"),
        (["--host", "0.0.0.0"], "give it a key with VLLM_API_KEY or --key-file"),
        (["--host", "example.org"], "give it a key with VLLM_API_KEY or --key-file"),
        (["--port", "{taken}"], "give another --port"),
        pytest.param(
            ["--transfer", "nccl"],
            "weights over NCCL go from GPU to GPU, and this process has none",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
        ),
        (["--key-file", "/no/such/folder/key"], "--key-file '/no/such/folder/key'"),
        (["--model", "no model"], "cannot load a configuration from 'no model'"),
        (["--max-context", "513"], "--max-context 513 is more than the 512 tokens that"),
        (["--lora-rank", "513"], "--lora-rank 513: should be less than or equal to 512"),
        (["--", "--host", "0.0.0.0"], "--host after `--`"),
        (["--max-context", "513", "--", "--port=1"], "--port=1 after `--`"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line(
    arguments: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before anything is started."""
    import socket

    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    monkeypatch.setattr("agentgym.commands.serve.find_spec", lambda name: object())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code = main(["serve", *(word.replace("{taken}", port) for word in arguments)])

    err = capsys.readouterr().err
    assert (code, err.count("\n")) == (2, 1)
    assert words in err


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is there")
def test_without_vllm_the_extra_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve"]) == 2
    assert "pip install 'agentgym-rl[vllm]'" in capsys.readouterr().err


def test_the_key_is_in_the_environment_only() -> None:
    """Everybody can read a command line."""
    settings = ServerSettings(model="m")
    inherited = {"VLLM_API_KEY": "old", "OMP_NUM_THREADS": "3"}
    environment = server_environment(settings, inherited, key="secret")

    assert environment["VLLM_API_KEY"] == "secret"
    assert environment["OMP_NUM_THREADS"] == "3"
    assert "VLLM_API_KEY" not in server_environment(settings, inherited, key=None)
    assert not any("secret" in word for word in server_argv(settings))


@pytest.mark.parametrize("on_gpu", [False, True])
def test_the_command_fits_the_machine(on_gpu: bool) -> None:
    argv = server_argv(ServerSettings(model="m", on_gpu=on_gpu, lora_rank=8))
    open_argv = server_argv(ServerSettings(model="m", on_gpu=on_gpu, host="0.0.0.0"))
    network = "agentgym_nccl" if on_gpu else "agentgym_gloo"

    assert ("--enforce-eager" in argv, "--block-size" in argv) == (not on_gpu, not on_gpu)
    assert '{"backend": "agentgym_shm"}' in argv
    assert f'{{"backend": "{network}"}}' in open_argv
    assert argv[argv.index("--max-lora-rank") + 1] == "8"


@pytest.mark.parametrize(("rank", "highest"), [(1, "1"), (4, "8"), (12, "16"), (513, "513")])
def test_adapters_of_any_rank_fit(rank: int, highest: str) -> None:
    """vLLM takes some numbers only as the highest rank."""
    argv = server_argv(ServerSettings(model="m", lora_rank=rank))

    assert argv[argv.index("--max-lora-rank") + 1] == highest


def test_no_word_of_the_users_opens_the_server_to_others() -> None:
    """Of two the last counts, and vLLM takes any beginning of an option for it."""
    argv = server_argv(ServerSettings(model="m", port=9, extra=("--hos", "0.0.0.0")))

    assert argv[-4:] == ["--host", "127.0.0.1", "--port", "9"]


def test_a_server_that_is_told_its_cache_starts_on_a_gpu_that_others_use() -> None:
    """Without it vLLM wants most of the memory to be free; the user's own words come last."""
    settings = ServerSettings(model="m", on_gpu=True, extra=("--gpu-memory-utilization", "0.3"))
    shares = [
        [argv[i + 1] for i, word in enumerate(argv) if word == "--gpu-memory-utilization"]
        for argv in map(server_argv, (settings, replace(settings, kv_cache_bytes=1 << 30)))
    ]

    assert shares == [["0.3"], ["0.01", "0.3"]]


async def status_of(guard: Guard, path: str, **headers: str) -> int:
    """What a request gets, 200 = it is let through."""
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "GET", "path": path, "headers": raw}
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError

    await guard(scope, receive, send)
    return int(sent[0]["status"]) if sent else 200


async def app(*_: object) -> None: ...


@pytest.mark.parametrize("path", ENDPOINTS)
async def test_with_a_key_everything_needs_it(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's own check leaves out the endpoints that change the server."""
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    guard = Guard(app)

    assert await status_of(guard, path) == 401
    assert await status_of(guard, path, authorization="Bearer secre") == 401
    assert await status_of(guard, path, authorization="Basic secret") == 401
    assert await status_of(guard, path, Authorization="bearer secret") == 200
    assert await status_of(guard, "/health") == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "127.0.0.1:8000"}, 200),
        ({"host": "localhost"}, 200),
        ({"host": "[::1]:8000"}, 200),
        ({"host": "127.0.0.2:8000"}, 200),
        ({"host": "[::ffff:127.0.0.1]"}, 200),
        ({"host": "127.0.0.1.page.example"}, 401),
        ({"host": "127.0.0.1:8000", "origin": "http://page"}, 401),
        ({"host": "page.example:8000"}, 401),
        ({}, 401),
    ],
)
async def test_without_a_key_browsers_are_kept_out(
    headers: dict[str, str], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page of the web may make a browser on this machine send what it likes."""
    monkeypatch.delenv("VLLM_API_KEY", raising=False)

    assert await status_of(Guard(app), "/collective_rpc", **headers) == status


@contextmanager
def command(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """`agentgym serve`, ended if it has not."""
    process = subprocess.Popen(
        [sys.executable, "-m", "agentgym", "serve", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(40)


def status(url: str, token: str = "") -> int:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def lengths_of_turns(url: str, token: str) -> list[int]:
    """Tokens that are sampled after prompts of one, two and three."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    found = []
    for length in (1, 2, 3):
        sampling = {"max_tokens": 4, "ignore_eos": True}
        body = json.dumps({"token_ids": [7] * length, "sampling_params": sampling}).encode()
        request = urllib.request.Request(f"{url}/inference/v1/generate", body, headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            found.append(len(json.load(answer)["choices"][0]["token_ids"]))
    return found


@pytest.mark.vllm
def test_a_server_starts_guards_itself_samples_and_ends(tmp_path: Path) -> None:
    """With a key of its own making, for others to reach; a signal takes all of it down.

    A small model in bfloat16 and short prompts: the first that use the tile unit of a CPU.
    """
    model = tiny_model(tmp_path / "model", dtype="bfloat16")
    port, key = free_port(), tmp_path / "key"
    small = ["--kv-cache-gb", "0.05", "--max-context", "128", "--threads", "1"]
    public = ["--host", "0.0.0.0", "--port", str(port), "--key-file", str(key)]
    url = f"http://127.0.0.1:{port}"
    timeout = ["--start-timeout", str(START_S)]
    with command("--model", str(model), *small, *public, *timeout) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        token = key.read_text().strip()
        refused = {path: status(url + path) for path in ENDPOINTS}
        allowed = [status(f"{url}{path}", token) for path in ("/v1/models", "/weight_info")]
        lengths = lengths_of_turns(url, token)
        shown = Path(f"/proc/{process.pid}/cmdline").read_text()
        process.send_signal(signal.SIGTERM)
        code = process.wait(40)

    assert said == f"serving {model} at {url}\n"
    assert set(refused.values()) == {401}, refused
    assert allowed == [200, 200]
    assert lengths == [4, 4, 4]
    assert key.stat().st_mode & 0o777 == 0o600
    assert token not in shown
    assert code == 0
    with pytest.raises(OSError, match="refused"):
        status(f"{url}/health")


async def test_the_health_of_a_server_says_which_launch_it_is_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AGENTGYM_LAUNCH", "mine")
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    sent: list[Any] = []

    async def answering(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: Any) -> None:
        sent.append(message["headers"])

    for path in ("/health", "/v1/models"):
        scope = {"type": "http", "method": "GET", "path": path}
        await Guard(answering)({**scope, "headers": [(b"host", b"localhost")]}, send, send)

    assert sent == [[(b"x-agentgym-launch", b"mine")], []]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "::1"])
def test_any_name_of_this_machine_can_be_listened_on(host: str) -> None:
    if host == "::1" and not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    refuse_taken_port(host, free_port())


@pytest.mark.parametrize(
    ("host", "words"),
    [("203.0.113.1", "Cannot assign requested address"), ("no.such.host.invalid", "cannot listen")],
)
def test_what_is_no_address_of_this_machine_is_one_line(host: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        refuse_taken_port(host, free_port())

    assert "Unknown error" not in str(caught.value)
