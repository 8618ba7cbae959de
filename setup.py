"""Maps the top-level folders `envs`, `tools` and `trainer` to `agentgym.envs`, ... at build time.

A static package list would forget new sub-packages, so they are discovered.
"""

from setuptools import find_packages, setup

FOLDERS = ("envs", "tools", "trainer")
OWN = find_packages(include=["agentgym", "agentgym.*"])
LINKED = tuple(f"agentgym.{folder}" for folder in FOLDERS)

packages = [name for name in OWN if not name.startswith(LINKED)]
for folder in FOLDERS:
    packages += [f"agentgym.{folder}"]
    packages += [f"agentgym.{folder}.{name}" for name in find_packages(folder)]

setup(
    packages=packages,
    package_dir={"": ".", **{f"agentgym.{folder}": folder for folder in FOLDERS}},
)
