"""Many rollouts at once: isolation, limits, deadlines, and processes and loops that can end.

What speaks HTTP is loaded late: the process that has to end in time should begin in time too.
"""

import asyncio
import importlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from agentgym.rollout import collect
from agentgym.rollout.sync import collect_sync
from agentgym.trajectory import Budget, RolloutOutput

kit = importlib.import_module("agentgym_cases_loop_kit")
"""Loaded by the runner, or by `_PROGRAM`."""

_PROGRAM = """
import importlib.util, json, sys
for name in ("loop_kit", "area_concurrency"):
    path = f"{sys.argv[1]}/{name}.py"
    spec = importlib.util.spec_from_file_location(f"agentgym_cases_{name}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
print(json.dumps(module.play(json.loads(sys.argv[2])), default=str), flush=True)
"""
_PATIENCE = {"request_timeout_s": "timeout_s", "max_retries": "max_retries"}


def run(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """What became of all trajectories."""
    if "code" in case:
        return _sketch(case["code"])
    if "run_as" in case:
        return _process(case)
    return play(case)


def play(case: Mapping[str, Any]) -> dict[str, Any]:
    """Play a case in this process."""
    if case.get("note"):
        assert isinstance(case["note"], str)
    if "endpoint" in case:
        return asyncio.run(_with_server(case))
    return asyncio.run(_collect(case, _engine(case)))


def _process(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same in a process of its own, which has to end by itself."""
    assert case["run_as"] == "python -c script"
    inner = {key: value for key, value in case.items() if key != "run_as"}
    started = time.perf_counter()
    with tempfile.TemporaryFile() as said:  # a pipe stays open in what the process leaves behind
        process = subprocess.run(
            [sys.executable, "-c", _PROGRAM, str(Path(__file__).parent), json.dumps(inner)],
            stdout=said,
            timeout=60,
            check=False,
        )
        seconds = time.perf_counter() - started
        assert process.returncode == 0, process.returncode
        said.seek(0)
        return {**json.loads(said.read()), "process_exits_within_s": seconds}


async def _collect(case: Mapping[str, Any], engine: Any) -> dict[str, Any]:
    envs: list[Any] = []
    make_env = _env_maker(case)

    def make() -> Any:
        envs.append(make_env())
        return envs[-1]

    player = kit.player_for(
        engine,
        kit.CharRenderer(),
        make,
        budget={name: case[name] for name in Budget.model_fields if name in case},
        concurrency=case.get("max_concurrency"),
        max_failed_fraction=case.get("max_failed_fraction"),
        env_timeout_s=case.get("env_timeout_s"),
        max_attempts=case.get("max_attempts", 1 if "endpoint" in case else None),
    )
    requests = [kit.request(index) for index in range(case.get("n_rollouts", 1))]
    said: dict[str, Any] = {}
    with kit.stopwatch(said):
        played = asyncio.ensure_future(kit.with_heartbeat(collect(requests, player)))
        if "cancel_after_s" in case:
            await asyncio.wait([played], timeout=case["cancel_after_s"])
            played.cancel()
            await asyncio.wait([played])
        if played.cancelled():
            return {"cancelled": True, **_of_envs(envs)}
        outputs, gap = await played
    said |= {"heartbeat_gap_seconds": gap, "finishes_within_s": said["seconds"]}
    said |= {"peak_in_flight": engine.peak, "peak_at_least": engine.peak}
    return said | _summary(outputs) | _of_envs(envs)


def _engine(case: Mapping[str, Any]) -> Any:
    script = case.get("script_per_rollout") or ["go on", "done"]
    fails = {*case.get("fails", ())}
    fails_once = {*case.get("fails_once", ())}

    class Counting(kit.Recorder):  # type: ignore[misc,name-defined]
        running = peak = 0

        async def generate(self, *args: Any, session: str) -> Any:
            self.running += 1
            self.peak = max(self.peak, self.running)
            try:
                await asyncio.sleep(case.get("engine_latency_s", 0.0))
                name, _, attempt = session.removeprefix("r").partition("~")
                if int(name) in (fails if attempt else fails | fails_once):
                    raise RuntimeError("the server died")
                return await super().generate(*args, session=session)
            finally:
                self.running -= 1

    renderer = kit.CharRenderer()
    return Counting(
        lambda call: script[call.turn],
        encode=renderer.encode,
        decode=renderer.decode,
        stop_token_id=kit.END,
    )


def _env_maker(case: Mapping[str, Any]) -> Callable[[], Any]:
    if "env_py" in case:
        source = case["env_py"]
        return lambda: kit.Sourced(source)
    kept = kit.tools_of(
        case.get("tools_py"),
        timeout_s=case.get("tool_timeout_s"),
        only_one=case.get("max_tool_concurrency") == 1,
    )
    judge = kit.function_of(case["reward_py"]) if "reward_py" in case else None
    return lambda: kit.Question(kept, judge=judge)


def _summary(outputs: Sequence[RolloutOutput]) -> dict[str, Any]:
    failed = [output for output in outputs if output.stop_reason.is_failure]
    said: dict[str, Any] = {
        "returned": len(outputs),
        "ok": len(outputs) - len(failed),
        "failed": len(failed),
        "failed_indices": [i for i, o in enumerate(outputs) if o.stop_reason.is_failure],
        "exception_propagates": False,
        "rewards": [output.reward for output in outputs],
        "statuses": [output.stop_reason.value for output in outputs],
        "stop_reason": outputs[0].stop_reason.value,
        "status": outputs[0].stop_reason.value if outputs[0] in failed else "ok",
        "final": kit.final_answer(outputs[0]),
        "error_text": failed[0].error if failed else None,
    }
    if failed:
        said |= {"failed_index": said["failed_indices"][0], "failed_reward": failed[0].reward}
        said["failed_status"] = failed[0].stop_reason.value
    for number, text in enumerate(kit.observations(outputs[0]), start=1):
        said[f"observation_{number}"] = text
    return said


def _of_envs(envs: Sequence[Any]) -> dict[str, Any]:
    """Whether each trajectory had its own env, and its tools a state of their own."""
    inner = [env.inner if isinstance(env, kit.Sourced) else env for env in envs]
    episodes = [getattr(env, "episode", None) for env in envs]
    states = [
        env.state if episode is None and isinstance(env, kit.Sourced) else episode and episode.state
        for env, episode in zip(envs, episodes, strict=True)
    ]
    lengths = [len(env.state) for env in envs if isinstance(env, kit.Sourced)]
    return {
        "envs_closed": sum(env.closed for env in envs),
        "envs_open": sum(not env.closed for env in envs),
        "distinct_env_instances": len(set(map(id, inner))),
        "distinct_tool_state": len(set(map(id, states))) == len(envs) and len(set(lengths)) <= 1,
    }


async def _with_server(case: Mapping[str, Any]) -> dict[str, Any]:
    """Ask a real server that answers as the case says."""
    from agentgym.engines.http import Patience
    from agentgym.engines.openai import Endpoint, OpenAIEngine, Wording

    received: list[float] = []
    async with _serving(list(case["endpoint"]), received) as url:
        patience = {name: case[key] for key, name in _PATIENCE.items() if key in case}
        renderer = kit.CharRenderer()
        wording = Wording(encode=renderer.encode, decode=renderer.decode, stop_token_id=kit.END)
        endpoint = Endpoint(url=url, model="m", patience=Patience(**patience))
        engine = OpenAIEngine(endpoint, wording)
        engine.peak = 0  # type: ignore[attr-defined]
        try:
            said = await _collect(case, engine)
        finally:
            await engine.aclose()
    return {**said, "requests": len(received)}


@asynccontextmanager
async def _serving(steps: Sequence[Mapping[str, Any]], received: list[float]) -> Any:
    from aiohttp import web

    async def handle(request: Any) -> Any:
        step = steps[min(len(received), len(steps) - 1)]
        received.append(time.monotonic())
        text, status = step.get("text", "late"), step.get("status", 200)
        await asyncio.sleep(30 if step.get("hang") else step.get("delay_s", 0))
        if step.get("disconnect") or step.get("reset"):
            assert request.transport is not None
            request.transport.close()
        named = {"Retry-After": str(step["retry_after"])} if "retry_after" in step else {}
        if status != 200 or "body" in step:
            return web.Response(status=status, text=step.get("body", "sorry"), headers=named)
        return web.json_response({"choices": [{"text": text, "finish_reason": "stop"}]})

    app = web.Application()
    app.router.add_post("/v1/completions", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


class _Trainer:
    """What a sketch may mean by one; its player outlives the loops it is used on."""

    def __init__(self) -> None:
        self.player = kit.player_for(
            _engine({}), kit.CharRenderer(), lambda: kit.Question(kit.tools_of(None)), concurrency=2
        )
        self.ok = 0

    async def rollout(self, n: int) -> list[RolloutOutput]:
        return self._count(await collect([kit.request(index) for index in range(n)], self.player))

    def rollout_sync(self, n: int) -> list[RolloutOutput]:
        return self._count(collect_sync([kit.request(index) for index in range(n)], self.player))

    def _count(self, outputs: list[RolloutOutput]) -> list[RolloutOutput]:
        self.ok += sum(not output.stop_reason.is_failure for output in outputs)
        return outputs


def _sketch(code: str) -> Mapping[str, Any]:
    """Run it, in a thread so that one that hangs is told as such."""
    trainer = _Trainer()
    names = {
        "asyncio": asyncio,
        "run": trainer.rollout,
        "rollout": trainer.rollout,
        "rollout_sync": trainer.rollout_sync,
        "threading": threading,
        "time": time,
        "trainer": trainer,
    }
    errors: list[BaseException] = []

    def target() -> None:
        try:
            exec(code, names)
        except BaseException as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    thread.join(20)
    if thread.is_alive():
        return {"hang": "hang", "ok": trainer.ok}
    if errors:
        raise errors[0]
    return {"ok": trainer.ok, "returned": trainer.ok}
