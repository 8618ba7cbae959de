"""Takes one protection out of the sandbox and runs the attack it is there for.

A mutation replaces words of the source, in a process of its own, before anything is imported: the
code that protects carries no switches with which it could be turned off.
"""

import argparse
import asyncio
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

from mutation_list import ANYONE, LIFELINES, MUTATIONS, ROOT, Edit, Mutation, name_of

SANDBOX = "agentgym.tools.sandbox"


class _Finder(MetaPathFinder):
    """Loads some modules with other words in them."""

    def __init__(self, edits: Sequence[Edit]) -> None:
        self._edits = {f"{SANDBOX}.{edit.module}": edit for edit in edits}

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name not in self._edits:
            return None
        spec = PathFinder.find_spec(name, path)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Loader(name, spec.origin, self._edits[name])
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, edit: Edit) -> None:
        super().__init__(name, path)
        self._edit = edit

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return compile(edited(Path(path).read_text(), self._edit), path, "exec")


def edited(source: str, edit: Edit) -> str:
    """The source without the protection.

    Raises:
        ValueError: the words are not there, or not once: the mutation is out of date.
    """
    if source.count(edit.old) != 1:
        raise ValueError(f"{edit.module} has {edit.old!r} {source.count(edit.old)} times")
    return source.replace(edit.old, edit.new)


def weaken(mutation: Mutation) -> None:
    """In this process, before the sandbox is imported."""
    sys.meta_path.insert(0, _Finder(mutation.edits))
    from agentgym.tools.sandbox.host import program_code

    sources = program_code._sources()
    for edit in mutation.edits:
        if edit.module.startswith("inside."):
            name = edit.module.removeprefix("inside.")
            sources[name] = edited(sources[name], edit)
    program_code._sources = lambda: sources
    if any(edit.module.startswith("inside.") for edit in mutation.edits):
        program_code.runner_code.cache_clear()


def _try(mutation: Mutation, attack_name: str) -> dict[str, Any]:
    """How the attack went; in a process of its own."""
    weaken(mutation)
    from attack_kit import Arena, backend
    from attack_list import ATTACKS
    from decoy_kit import Decoys

    (attack,) = (attack for attack in ATTACKS if attack.name == attack_name)

    async def fight() -> dict[str, Any]:
        provider = backend(mutation.backend)
        with Decoys() as decoys:
            try:
                verdict = await Arena(provider, decoys).run(attack)
                return {"harms": [harm[:300] for harm in verdict.harms[:5]]}
            finally:
                await provider.aclose()

    return asyncio.run(fight())


def _fork(mutation: Mutation) -> dict[str, Any]:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = _try(mutation, mutation.attack)
        except BaseException as problem:  # noqa: BLE001 - the parent reports it
            answer = {"error": f"{type(problem).__name__}: {problem}"}
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        data = file.read()
    os.waitpid(pid, 0)
    return json.loads(data)  # type: ignore[no-any-return]


def _hold(backend: str) -> None:
    weaken(LIFELINES[backend])
    from holding_kit import hold

    asyncio.run(hold(backend))


def _import_what_is_not_mutated() -> None:
    """And compile the runner, once for all that leave it as it is."""
    for name in ("asyncio", "ssl", "decoy_kit", "attack_watch", f"{SANDBOX}.base"):
        importlib.import_module(name)
    importlib.import_module(f"{SANDBOX}.host.program_code").runner_code()
    mutated = {f"{SANDBOX}.{edit.module}" for mutation in MUTATIONS for edit in mutation.edits}
    assert not mutated & sys.modules.keys()


def main(arguments: Sequence[str]) -> None:
    """One line of JSON for each mutation."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--who", nargs="+", default=[ANYONE, ROOT])
    parser.add_argument("--only", default="")
    parser.add_argument("--backend", default="")
    parser.add_argument("--hold", choices=LIFELINES, help="sandboxes that nothing ends")
    options = parser.parse_args(arguments)
    if options.hold:
        _hold(options.hold)
        return
    folder = tempfile.mkdtemp(prefix="agentgym-mutations-")
    os.chmod(folder, 0o1777)
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    os.chdir(folder)
    _import_what_is_not_mutated()
    for mutation in MUTATIONS:
        chosen = options.backend in mutation.backend and options.only in mutation.name
        if mutation.needs in options.who and chosen:
            print(json.dumps({"name": name_of(mutation), **_fork(mutation)}), flush=True)
    subprocess.run(["rm", "-rf", folder], check=False)


if __name__ == "__main__":
    main(sys.argv[1:])
