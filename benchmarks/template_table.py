"""Writes docs/templates.md: what comes of training with each chat template that TRL ships.

The real tokenizers are not needed: a stand-in has the special tokens that a template names and one
token per byte besides. `python benchmarks/template_table.py` rewrites the page.
"""

import re
from collections import Counter
from collections.abc import Iterator
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import trl

from agentgym.rendering.audit import TemplateAudit, audit_template
from agentgym.testing import byte_tokenizer

TEMPLATES = Path(trl.__file__).parent / "chat_templates"
PAGE = Path(__file__).parents[1] / "docs" / "templates.md"
TODAY = date(2026, 11, 29)
BASE = ("<pad>", "<bos>", "<eos>")
SPECIAL = re.compile(
    r"""<[|\uff5c][^|\uff5c<>'"{} ]{1,40}[|\uff5c]>|<\|[a-z_]+>|<[a-z_]+\|>|</?s>"""
    r"|\[/?INST\]|\[gMASK\]|<sop>|</?think>|</?tool_call>|</?tool_response>|</?arg_(?:key|value)>"
    r"|<image>|<(?:start|end)_of_\w+>"
)
ENDS = (
    *("<|im_end|>", "<|eot_id|>", "<|eot|>", "<\uff5cend\u2581of\u2581sentence\uff5c>", "</s>"),
    *("<|return|>", "<|END_OF_TURN_TOKEN|>", "<end_of_utterance>"),
)
"""What a family's tokenizer has as `eos`; others have a token that templates never show."""


def names() -> list[str]:
    """Of the templates."""
    return sorted(path.stem for path in TEMPLATES.glob("*.jinja"))


def stand_in(name: str) -> Any:
    """A tokenizer for a template, by name."""
    template = (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")
    special = sorted(set(SPECIAL.findall(template)) - set(BASE))
    eos = next((end for end in ENDS if end in special), "<eos>")
    tokenizer = byte_tokenizer(template=template, specials=(*BASE, *special), eos=eos)
    tokenizer.bos_token = "<bos>"
    tokenizer.name_or_path = name
    return tokenizer


@cache
def audits() -> dict[str, TemplateAudit]:
    """By name."""
    return {name: audit_template(stand_in(name), today=TODAY) for name in names()}


def page() -> str:
    """The page's text."""
    counts = Counter(audit.outcome for audit in audits().values())
    lines = [
        "# Chat templates",
        "",
        INTRODUCTION,
        "",
        f"Of the {len(audits())} templates that TRL {trl.__version__} ships, {counts['exact']} are "
        f"exact, {counts['forks']} fork, and {counts['refused']} are refused.",
        "",
        "| template | outcome | tools | ends of a turn | earlier turns are shown otherwise |",
        "|---|---|---|---|---|",
        *(_row(name, audit) for name, audit in audits().items()),
        "",
        "What the columns say",
        "",
        *LEGEND,
    ]
    return "\n".join(lines) + "\n"


def _row(name: str, audit: TemplateAudit) -> str:
    ends = " ".join(f"`{end.replace('|', chr(92) + '|')}`" for end in audit.turn_ends)
    reasons = "; ".join(audit.reasons).replace("|", "\\|").replace("<", "`<").replace(">", ">`")
    return f"| {name} | {audit.outcome} | {', '.join(_traits(audit))} | {ends} | {reasons} |"


def _traits(audit: TemplateAudit) -> Iterator[str]:
    shape = audit.shape
    if shape is None:
        return
    yield "template" if shape.tools else "text"
    if shape.tools and shape.calls != "mapping":
        yield f"calls {shape.calls}"
    if not shape.many_calls:
        yield "one call a message"
    if not shape.system:
        yield "no system message"
    if not shape.repeats:
        yield "roles alternate"
    if shape.parts:
        yield "content in parts"
    if audit.reads_clock:
        yield "date"


INTRODUCTION = """\
How rendering works: the ids after a sampled turn are what the template writes after a stand-in for
it, so sampled ids are never rendered again. What a template cannot take (a system message, two user
messages in a row, tools) is put into a form that it shows completely; each form is found at
start-up by small renders in which every word has to turn up in order.

* **exact**: every turn's prompt is the previous prompt, the sampled ids and the template's own text
  between them, over tool turns, parallel calls, user turns after reasoning and turns cut by length.
* **forks**: on the occasions named, the template shows earlier turns otherwise than before. With
  `--on-history-rewrite fork`, the default, the trajectory goes on with the prompt that the template
  shows, as a sample of its own that shares what still matches: the policy is trained on the prompts
  it will see in use, and tool loops, where these templates keep their reasoning, stay one sample.
  `keep` goes on with what was sampled: one sample per trajectory, on prompts that use never shows.
  `refuse` does not start.
* **refused**: the model cannot be used at all, and the run does not start.

White space that a template trims, calls that it spells anew and empty blocks of reasoning that it
adds or drops are layout, not another history: the sampled ids stay as they are.

A template that prints the date is told that of the run's start (`template_date` in the saved
config, `--template-date`), also after a resume; one whose render differs from one time to the next
for another reason is refused. `--template-args` are part of the run's config: training and
evaluation render with the same ones.

Written by `python benchmarks/template_table.py`; a test proves the table on random conversations.\
"""
LEGEND = (
    "* **tools**: `template`: the template lists them; `text`: they are described in the system "
    "message, and results come as user messages, as the dialect writes them.",
    "* **calls spelled**: the template drops calls, so they stand in the content, as the dialect "
    "writes them. **one call a message**: parallel calls become a message each.",
    "* **no system message**: it begins the first user message. **roles alternate**: user messages "
    "in a row are joined. **content in parts**: a list of text parts instead of a string.",
    "* **ends of a turn**: ids that stop sampling; what follows them is never sampled.",
)

if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE}: {Counter(audit.outcome for audit in audits().values())}")
