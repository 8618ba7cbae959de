"""For tests of environments, tools, renderers and schedulers: checks, and small real objects."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentgym.checking import check_env, check_tool

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["CHATML", "SPECIALS", "byte_tokenizer", "check_env", "check_tool"]

CHATML = (
    "{%- if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool.function | tojson }}\n"
    "{% endfor %}<|im_end|>\n{% endif -%}"
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{%- for call in m.tool_calls or [] %}<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}\n'
    "</tool_call>{% endfor -%}"
    "<|im_end|>\n{% endfor -%}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif -%}"
)
"""A plain ChatML template with tools and Hermes-style calls that keeps history."""
SPECIALS = ("<|pad|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<think>")


def byte_tokenizer(
    *, template: str = CHATML, specials: Sequence[str] = SPECIALS, eos: str = "<|im_end|>"
) -> "PreTrainedTokenizerFast":
    """One token per byte and per special token; any text survives a round trip."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(token, normalized=False) for token in specials])
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=core,
        chat_template=template,
        eos_token=eos,
        pad_token=specials[0],
        clean_up_tokenization_spaces=False,
    )
