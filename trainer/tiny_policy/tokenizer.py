"""Byte-level BPE with 512 entries in which every digit stands alone.

Digits are single tokens so that a model of this size can copy numbers it has never seen. Words are
split at white space only, so that the fixed text of a tool call costs few tokens; bytes cover
everything else.
"""

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast

PAD = "<|pad|>"
START = "<|im_start|>"
END = "<|im_end|>"
SPECIAL_TOKENS = (
    PAD,
    START,
    END,
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)
VOCABULARY_SIZE = 512
_PIECES = r"\d| ?[^\s\d]+|\s"


def build_tokenizer(texts: Iterable[str], *, chat_template: Path) -> PreTrainedTokenizerFast:
    """Train on `texts`; the same texts give the same tokenizer."""
    core = Tokenizer(BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    core.train_from_iterator(_without_specials(texts), _trainer())
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=core,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[t for t in SPECIAL_TOKENS if t not in (PAD, END)],
        padding_side="left",
        model_max_length=512,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = chat_template.read_text(encoding="utf-8")
    return tokenizer


def _trainer() -> BpeTrainer:
    return BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )


def _without_specials(texts: Iterable[str]) -> Iterable[str]:
    for text in texts:
        for special in SPECIAL_TOKENS:
            text = text.replace(special, "\n")
        yield text
