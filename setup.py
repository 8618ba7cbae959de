"""Maps the top-level folders `envs`, `tools` and `trainer` to `agentgym.envs`, ... at build time.

A static package list would forget new sub-packages, so they are discovered. The links
`agentgym/envs`, ... show editors the same tree; they are left out here, so nothing ships twice.
"""

from setuptools import find_packages, setup

FOLDERS = ("envs", "tools", "trainer")
LINKS = [f"agentgym.{folder}{rest}" for folder in FOLDERS for rest in ("", ".*")]

packages = find_packages(include=["agentgym", "agentgym.*"], exclude=LINKS)
for folder in FOLDERS:
    packages += [f"agentgym.{folder}"]
    packages += [f"agentgym.{folder}.{name}" for name in find_packages(folder)]

setup(
    packages=packages,
    package_dir={"": ".", **{f"agentgym.{folder}": folder for folder in FOLDERS}},
)
