"""Tiny random checkpoints, written in a second: enough of a model for every engine to load."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from transformers import LlamaConfig

VOCABULARY = 1024


def write_tokenizer(folder: Path) -> None:
    """A tokenizer of single characters and filler words; ids 0, 1, 2 are <pad>, <s>, </s>."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "<s>", "</s>", "<unk>", *[chr(c) for c in range(32, 127)]]
    words += [f"w{i}" for i in range(len(words), VOCABULARY)]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>")
    fast.chat_template = (
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
    )
    fast.save_pretrained(folder)


def llama_config(layers: int = 2) -> LlamaConfig:
    """Config of the tiny Llama: tied embeddings, head size 32 (smaller ones no engine supports)."""
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        initializer_range=0.1,
    )


def write_llama(folder: Path, *, seed: int = 0) -> Path:
    """A causal language model with its tokenizer."""
    from transformers import LlamaForCausalLM

    torch.manual_seed(seed)
    LlamaForCausalLM(llama_config()).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def write_llama_scorer(folder: Path, *, seed: int = 0) -> Path:
    """A Llama with a scalar head."""
    from transformers import LlamaForSequenceClassification

    torch.manual_seed(seed)
    config = llama_config()
    config.num_labels = 1
    LlamaForSequenceClassification(config).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def write_headless_scorer(folder: Path) -> Path:
    """A checkpoint whose config promises a scalar head that its weights do not hold."""
    from safetensors.torch import load_file, save_file

    write_llama_scorer(folder)
    tensors = load_file(folder / "model.safetensors")
    save_file({name: t for name, t in tensors.items() if name != "score.weight"}, folder / "model.safetensors")
    return folder


def write_bert_scorer(folder: Path, *, seed: int = 0) -> Path:
    """A BERT pair scorer with token types and 64 positions."""
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        num_labels=1,
        initializer_range=0.2,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    write_tokenizer(folder)
    return folder
