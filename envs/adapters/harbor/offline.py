"""The usual `tests/test.sh`, without its network: it fetches pytest through uv, which is here.

Only the lines of Harbor's own template are understood; whatever else fetches something makes the
task unsupported.
"""

import re

from agentgym.envs.adapters.harbor.dockerfile import UnsupportedTaskError

PYTEST = "python3 -P -m pytest --no-header -p no:cacheprovider"
"""Without the working directory on the import path, as uvx has it: the agent's files lie there.
The header would ask for the metadata of packages, which a sandbox does not show."""
_OPTION = r"(?:-p|--python|-w|--with)(?:=|\s+)\S+"
_QUIET = r"(?:\s*(?:[12&]?>+\s*/dev/null|2>&1))*"
_END = r"(?=\s*(?:$|[;&|)]))"
_KNOWN = (
    (rf"apt-get(?:\s+-\S+)*\s+update(?:\s+-\S+)*{_QUIET}", "true"),
    (rf"apt-get(?:\s+-\S+)*\s+install(?:\s+-\S+)*\s+curl(?:\s+-\S+)*{_QUIET}{_END}", "true"),
    (rf"curl\s+(?:-\S+\s+)*https://astral\.sh/uv/\S*\s*\|\s*(?:ba)?sh{_QUIET}", "true"),
    (r"(?:source|\.)\s+\"?\$\{?HOME\}?/\.local/bin/env\"?", "true"),
    (rf"uvx(?:\s+{_OPTION})*\s+pytest\b", PYTEST),
    (r"\s--ctrf(?:=|\s+)\S+", ""),
)
_NEEDS = re.compile(r"(?:-w|--with)(?:=|\s+)([\w-]+)")
_PROVIDED = {"pytest", "pytest-json-ctrf"}
_NETWORK = re.compile(
    r"(?:^|[\s;&|(])"
    r"(apt-get|apt|apk|yum|dnf|curl|wget|uvx?|pip3?|pipx|npm|npx|conda|docker|git clone)(?=\s)",
    re.MULTILINE,
)


def offline(script: str) -> str:
    """The script, without comments and with pytest from this machine.

    Raises:
        UnsupportedTaskError: it fetches something else.
    """
    first, _, rest = script.partition("\n")
    text = f"{first}\n" + re.sub(r"^\s*#.*$", "", rest, flags=re.MULTILINE)
    text = text.replace("\\\n", " ")
    foreign = set(_NEEDS.findall(text)) - _PROVIDED
    if foreign:
        raise UnsupportedTaskError(f"tests/test.sh needs the package {min(foreign)}")
    for pattern, replacement in _KNOWN:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    needs = _NETWORK.search(text)
    if needs is not None:
        raise UnsupportedTaskError(f"tests/test.sh needs a network or packages: {needs[1]}")
    return text


def uses_pytest(script: str) -> bool:
    """Whether the script runs pytest."""
    return re.search(r"\bpytest\b", script) is not None
