"""The padding token of a decoder with a classifier's head.

transformers reads the score at the last token that is not padding. Checkpoints without a token for
padding, such as Llama 3 and Mistral, are padded with the one that ends each turn. Their score is
then read one token earlier than by engines that read the last token.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmrl.models.checkpoint_inspect import architecture, read_config

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


def padding_token(path: str | Path) -> int | None:
    """Return a classifier's padding token; None for other models and where config.json has none."""
    config = read_config(path)
    if not architecture(path).endswith("ForSequenceClassification"):
        return None
    return config.get("text_config", config).get("pad_token_id")


def padded_apart(tokenizer: Any, config: PreTrainedConfig) -> Any:
    """Return the tokenizer with a padding token that ends no text: the model's own if that is one,
    else another special token. Without any it has none, and transformers scores one text at a
    time."""
    last = _last_token(tokenizer)
    named = [str(each) for each in tokenizer.added_tokens_decoder.values() if each.special]
    pads = [each for each in named if "pad" in each.lower()]
    candidates = [tokenizer.pad_token, *pads, tokenizer.bos_token, tokenizer.unk_token]
    ids = [config.pad_token_id, *map(tokenizer.convert_tokens_to_ids, filter(None, candidates))]
    size = config.get_text_config().vocab_size
    apart = [each for each in ids if each is not None and each != last and 0 <= each < size]
    padded = copy.deepcopy(tokenizer)
    padded.pad_token = tokenizer.convert_ids_to_tokens(apart[0]) if apart else None
    return padded


def _last_token(tokenizer: Any) -> int | None:
    """Return the token behind the last word that a classifier reads, None where there is none."""
    word: list[int] = []
    if tokenizer.chat_template:
        turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "a"}]
        try:
            text = tokenizer.apply_chat_template(turns, tokenize=False)
        except Exception:  # A template is a program of the checkpoint's own: it may raise anything.
            return tokenizer.eos_token_id
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        if text.endswith("a"):
            word = ids
    else:
        ids = tokenizer("a")["input_ids"]
        word = tokenizer("a", add_special_tokens=False)["input_ids"]
    return None if ids[-1:] == word[-1:] else ids[-1]
