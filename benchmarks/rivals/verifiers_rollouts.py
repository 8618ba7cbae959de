"""verifiers' way: every rollout is a process of the null harness that talks HTTP to a model.

    python verifiers_rollouts.py COUNT CONCURRENCY

The model is a server in this process that answers from the script. With this client nothing is
tokenised: the record is text. One rollout is played first, so that servers run, the harness'
environment is installed and its files are read before the clock starts.
"""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from aiohttp import web
from arithmetic import TOOL, Clock, answer, expressions, index_of
from verifiers.v1.cli.eval.runner import _in_process
from verifiers.v1.configs.cli.eval import EvalConfig
from verifiers.v1.episode import Episode
from verifiers.v1.utils.loaders import load_environment


def reply(body: dict[str, Any], limit: int) -> dict[str, Any]:
    """The scripted policy's next message."""
    messages = body["messages"]
    asked = next(message["content"] for message in messages if message["role"] == "user")
    text = asked if isinstance(asked, str) else "".join(part["text"] for part in asked)
    index, turn = index_of(text, limit), sum(m["role"] == "assistant" for m in messages)
    if turn == 2:
        return {"role": "assistant", "content": answer(index)}
    name = next(t["function"]["name"] for t in body["tools"] if TOOL in t["function"]["name"])
    arguments = json.dumps({"expression": expressions(index)[turn]})
    function = {"name": name, "arguments": arguments}
    call = {"id": f"call_{turn}", "type": "function", "function": function}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


async def serve(limit: int) -> str:
    """A chat completions server; its URL."""

    async def handle(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        message = reply(body, limit)
        reason = "tool_calls" if "tool_calls" in message else "stop"
        common = {"id": "x", "created": 0, "model": body["model"]}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        if not body.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": reason}
            return web.json_response(
                {**common, "object": "chat.completion", "choices": [choice], "usage": usage}
            )
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for call in message.get("tool_calls", []):
            call["index"] = 0
        choice = {"index": 0, "delta": message, "finish_reason": reason}
        chunk = {**common, "object": "chat.completion.chunk", "choices": [choice], "usage": usage}
        await response.write(f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode())
        return response

    app = web.Application()
    app.router.add_post("/v1/chat/completions", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return f"http://127.0.0.1:{runner.addresses[0][1]}/v1"


def config(count: int, concurrency: int, url: str, out: Path) -> EvalConfig:
    """A run of the null harness in subprocesses."""
    agent = {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}}
    taskset = {"id": "verifiers_calculator", "num_tasks": count}
    return EvalConfig.model_validate(
        {
            "env": {"taskset": taskset, "agent": agent},
            "client": {"base_url": url, "api_key_var": "SCRIPTED_KEY"},
            "model": "scripted",
            "max_concurrent": concurrency,
            "output_dir": str(out),
            "push": False,
            "rich": None,
        }
    )


async def timed(settings: EvalConfig, concurrency: int) -> tuple[dict[str, float], float]:
    """Seconds and sum of rewards, without the first rollout and the start of the servers."""
    env = load_environment(settings.env)
    slots = [slot for task in env.taskset for slot in env.slots(task, 1)]
    limit = asyncio.Semaphore(concurrency)

    async def written(episode: Episode) -> None:
        pass

    async with _in_process(env, settings, limit, written) as play:
        await play(slots[0])
        clock = Clock()
        episodes = await asyncio.gather(*map(play, slots[1:]))
        spent = clock.spent()
    return spent, sum(trace.reward for episode in episodes for trace in episode.traces)


async def main() -> None:
    count, concurrency = int(sys.argv[1]), int(sys.argv[2])
    os.environ["SCRIPTED_KEY"] = "none"
    url = await serve(count + 1)
    with tempfile.TemporaryDirectory() as folder:
        settings = config(count + 1, concurrency, url, Path(folder))
        spent, correct = await timed(settings, concurrency)
    print(json.dumps({**spent, "correct": correct}))


if __name__ == "__main__":
    asyncio.run(main())
