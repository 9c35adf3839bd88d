"""A random model for the checks, and what plain transformers say about it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from rmrl.types import Ragged, TrainBatch

SHAPES: dict[str, tuple[int, int, int, int, int]] = {
    "tiny": (2, 128, 4, 2, 1024),
    "small": (12, 768, 12, 4, 32000),
    "large": (16, 2048, 32, 8, 64000),
}
"""Layers, hidden size, heads, heads of keys and values, vocabulary: 0.5M, 115M and 1.1B
parameters."""


def write_model(folder: Path, size: str, *, seed: int = 0) -> Path:
    """A Llama of random weights with tied embeddings, and a tokenizer of numbered words; nothing is
    downloaded."""
    from transformers import LlamaConfig

    layers, hidden, heads, kv_heads, vocabulary = SHAPES[size]
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        initializer_range=hidden**-0.5,  # logits of about unit variance
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    return write_random(config, folder, seed=seed)


def write_random(
    config: Any,
    folder: Path,
    *,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    seed: int = 0,
) -> Path:
    """A causal language model of random weights, drawn on `device`, and a tokenizer."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    with torch.device(device):
        AutoModelForCausalLM.from_config(config, dtype=dtype).save_pretrained(folder)
    _write_tokenizer(folder, config.vocab_size)
    return folder


def write_scorer(path: str | Path, folder: Path) -> Path:
    """The model with a random head of one number, in `folder`."""
    from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

    config = AutoConfig.from_pretrained(path)
    config.num_labels = 1
    AutoModelForSequenceClassification.from_pretrained(path, config=config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(path).save_pretrained(folder)
    return folder


def _write_tokenizer(folder: Path, vocabulary: int) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "<s>", "</s>", "<unk>", *[f"w{i}" for i in range(4, vocabulary)]]
    tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        chat_template="{% for turn in messages %}{{ turn['content'] }} {% endfor %}",
    ).save_pretrained(folder)


class Plain:
    """transformers' own forward pass, a row at a time and without padding: what everything is
    compared with."""

    def __init__(self, path: str | Path, device: str, dtype: str = "float32") -> None:
        from transformers import AutoModelForCausalLM

        torch.backends.cuda.matmul.allow_tf32 = False
        self.model: Any = AutoModelForCausalLM.from_pretrained(
            path, dtype=getattr(torch, dtype), attn_implementation="sdpa"
        )
        self.model = self.model.eval().to(device)
        self._device = device

    @torch.no_grad()
    def load(self, tensors: Any) -> None:
        """Copy in (name, tensor) pairs under Hugging Face names."""
        state = self.model.state_dict()
        for name, tensor in tensors:
            state[name].copy_(tensor)

    def batch_logprobs(self, batch: TrainBatch, temperature: float) -> Ragged:
        """Of the response tokens of a batch."""
        pairs = zip(batch.tokens.rows(), batch.response_mask.lengths, strict=True)
        return self.logprobs(
            [
                (row[: len(row) - int(count)].tolist(), row[len(row) - int(count) :].tolist())
                for row, count in pairs
            ],
            temperature,
        )

    @torch.no_grad()
    def logprobs(
        self, rows: Sequence[tuple[Sequence[int], Sequence[int]]], temperature: float
    ) -> Ragged:
        """log softmax(logits / temperature)[token] of each row's response; rows are (prompt,
        response)."""
        found: list[list[float]] = []
        for prompt, response in rows:
            ids = torch.tensor([[*prompt, *response]], device=self._device)
            logits = self.model(ids).logits[0, len(prompt) - 1 : -1].float() / temperature
            found.append(
                logits.log_softmax(-1).gather(1, ids[0, len(prompt) :, None])[:, 0].tolist()
            )
        return Ragged.of(found, "float32")
