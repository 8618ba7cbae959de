"""The whole agent loop through vLLM, against vLLM's own offline `generate` on the same requests.

With `--turns 1`, trajectories of one turn: env, chat template, budgets, engine, logprobs, masks,
records. The prompts and sampling parameters that the loop asks for are written down and given to
`vllm.LLM.generate`, all at once, as vLLM starts it. Each contestant has a process of its own and
computes while the others wait, in turn, so that a busy machine slows all alike; the ratios within a
round are the figures to read. Prompts differ from round to round, so no contestant finds them in
its cache.

With more turns, the loop with vLLM's prefix caching against the loop without.

    VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=2 GOMP_SPINCOUNT=0 \
        python benchmarks/vllm_loop.py [--model MODEL] [--rounds 8] [--trajectories 128]
"""

import argparse
import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from statistics import median

from vllm_contestants import Asked, Order, Plan, Play, Round, in_process, offline, through_server

from agentgym.trainer.tiny_policy import PATH

CONTESTANTS: dict[str, Callable[[Plan], Play]] = {
    "loop, in process": in_process,
    "loop, server": through_server,
    "loop, no prefix caching": partial(in_process, prefix_caching=False),
    "vLLM offline": offline,
}
_OF_ONE_TURN = ("loop, in process", "loop, server", "vLLM offline")
_OF_MORE = ("loop, in process", "loop, no prefix caching")
"""The last one is what others are held against; it gets the requests that the first has made."""


def compete(name: str, plan: Plan, pipe: Connection) -> None:
    """A contestant's process: rounds in, what was done out."""
    play = CONTESTANTS[name](plan)
    pipe.send("ready")
    while (order := pipe.recv()) is not None:
        pipe.send(play(order))


@contextmanager
def processes(names: tuple[str, ...], plan: Plan) -> Iterator[dict[str, Connection]]:
    """One for each contestant, started one after the other."""
    spawn = multiprocessing.get_context("spawn")
    pipes: dict[str, Connection] = {}
    started = []
    try:
        for name in names:
            pipes[name], theirs = spawn.Pipe()
            started.append(spawn.Process(target=compete, args=(name, plan, theirs)))
            started[-1].start()
            theirs.close()
            pipes[name].recv()
        yield pipes
    finally:
        for pipe in pipes.values():
            with suppress(BrokenPipeError):  # of one that has failed
                pipe.send(None)
        for process in started:
            process.join(20)
            process.kill()


def ask(pipe: Connection, order: Order) -> Round:
    """A round of one contestant."""
    pipe.send(order)
    done: Round = pipe.recv()
    return done


def options() -> argparse.Namespace:
    """Of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", default=str(PATH), help="folder or hub id")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--trajectories", type=int, default=128, help="at once, per round")
    parser.add_argument("--turn-tokens", type=int, default=64, help="sampled at most")
    parser.add_argument("--prompt-words", type=int, default=60)
    parser.add_argument("--turns", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    """Print tokens per second, and ratios to vLLM alone."""
    given = options()
    plan = Plan(given.model, given.trajectories, given.turn_tokens, given.prompt_words, given.turns)
    names = _OF_ONE_TURN if given.turns == 1 else _OF_MORE
    speeds: dict[str, list[float]] = {name: [] for name in names}
    with processes(names, plan) as pipes:
        for number in range(given.rounds + 1):
            asked: list[Asked] = []
            for name in names:
                done = ask(pipes[name], Order(number, asked))
                asked = asked or done.asked
                if number:  # the first round warms up
                    speeds[name].append(done.tokens / done.seconds)
                    print(f"{name}: {done.tokens} tokens in {done.seconds:.2f} s", flush=True)
    for name, values in speeds.items():
        ratios = [a / b for a, b in zip(values, speeds[names[-1]], strict=True)]
        print(
            f"{name:>24}: {median(values):8.0f} tokens/s, {median(ratios):.2f} of {names[-1]} "
            f"(from {min(ratios):.2f} to {max(ratios):.2f})"
        )


if __name__ == "__main__":
    main()
