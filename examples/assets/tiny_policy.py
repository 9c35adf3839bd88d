"""What the makers of tiny policies share: a Llama of 0.8M parameters over characters, and its
supervised warm-up."""

from __future__ import annotations

import random
import string
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

SPECIAL = ["<pad>", "<bos>", "<eos>", "<unk>", "<|system|>", "<|user|>", "<|assistant|>"]
PRINTABLE = string.printable[:95]
"""Printable ASCII, the space included, without line breaks."""
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}{% if m['role'] =="
    " 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}{% if add_generation_prompt"
    " %}<|assistant|>{% endif %}"
)
SHAPE: dict[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
"""Heads of 32: the smallest that vLLM's CPU kernels accept."""
IGNORED = -100
"""Label of positions that are not trained on."""


def tokenizer_of(symbols: Sequence[str], *, max_length: int) -> Any:
    """One token per symbol; `symbols` start with SPECIAL, and every character is one of them or
    unknown."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.WordLevel({s: i for i, s in enumerate(symbols)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    inner.decoder = decoders.Fuse()
    names = {"pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>"}
    rest = {
        "additional_special_tokens": SPECIAL[4:],
        "padding_side": "left",
        "model_max_length": max_length,
    }
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, **names, **rest)
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def tiny_llama(vocabulary: int, *, max_length: int, seed: int) -> Any:
    """A fresh fp32 LlamaForCausalLM of SHAPE."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    ids: dict[str, Any] = {
        "vocab_size": vocabulary,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return LlamaForCausalLM(
        LlamaConfig(**SHAPE, **ids, max_position_embeddings=max_length, tie_word_embeddings=True)
    ).float()


def encode(
    tokenizer: Any, pairs: Sequence[tuple[list[dict[str, str]], str]]
) -> tuple[torch.Tensor, torch.Tensor]:
    """(token ids, labels) of (messages, answer) pairs, int64 [N, S], right-padded; labels keep the
    answer and its end token only."""
    import torch

    rows = []
    for messages, answer in pairs:
        prompt = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_dict=False
        )
        rows.append((prompt, [*tokenizer.encode(answer), tokenizer.eos_token_id]))
    width = max(len(p) + len(a) for p, a in rows)
    tokens, labels = (
        torch.zeros(len(rows), width, dtype=torch.int64),
        torch.full((len(rows), width), IGNORED),
    )
    for i, (prompt, answer) in enumerate(rows):
        end = len(prompt) + len(answer)
        tokens[i, :end] = torch.tensor(prompt + answer)
        labels[i, len(prompt) : end] = torch.tensor(answer)
    return tokens, labels


def warm_up(
    model: Any,
    tokens: torch.Tensor,
    labels: torch.Tensor,
    *,
    steps: int,
    batch: int,
    lr: float,
    shuffler: random.Random,
    told: Callable[[], str] = str,
    every: int,
) -> None:
    """`steps` steps of AdamW (one-cycle schedule, peak `lr`) on batches that `shuffler` draws.

    Prints loss and seconds every so many steps and after the last, with what `told` then says.
    """
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=lr, total_steps=steps, pct_start=0.1
    )
    started = time.monotonic()
    for step in range(1, steps + 1):
        rows = shuffler.sample(range(len(tokens)), batch)
        loss = model(tokens[rows], labels=labels[rows]).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % every == 0 or step == steps:
            print(
                f"step {step:4d}  loss {loss.item():.3f} "
                f" {told()}{time.monotonic() - started:.0f} s",
                flush=True,
            )


def save(model: Any, tokenizer: Any, out: Path) -> None:
    """Write a Hugging Face folder."""
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    print(f"saved to {out}")
