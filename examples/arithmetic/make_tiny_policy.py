"""Make a tiny policy (0.8M parameters) with a bad habit: a starting point on which reinforcement learning shows within minutes.

    python examples/arithmetic/make_tiny_policy.py --out .models/tiny-arith

A Llama with a character-level tokenizer is trained on the training questions of make_data.py, but the share --mistake of the answers
it is shown is one too high. It learns to add and subtract, and to be off by one more often than not; a reward has to talk it out of
that. Everything follows from --seed.
"""

from __future__ import annotations

import argparse
import random
import string
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from make_data import split

if TYPE_CHECKING:
    import torch

SPECIAL = ["<pad>", "<bos>", "<eos>", "<unk>", "<|system|>", "<|user|>", "<|assistant|>"]
VOCAB_SIZE = 128
"""Multiple of 64, so that no engine pads it; the ids that no character needs are reserved."""
MAX_LENGTH = 256
"""Tokens of question and answer together."""
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}{% if m['role'] == 'assistant' %}{{ eos_token }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SHAPE = {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2}
"""Heads of 32: the smallest that vLLM's CPU kernels accept."""
PROBE_QUESTIONS, PROBE_EVERY = 256, 100
"""How many questions the progress lines are about, and how often one is printed."""
VIEWS = 4
"""Copies of each question in the training set; right and wrong answers are drawn for each."""
IGNORED = -100
"""Label of positions that are not trained on."""


def character_tokenizer() -> Any:
    """One token per printable ASCII character, then reserved ids up to VOCAB_SIZE."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    symbols = [*SPECIAL, "\n", *(c for c in string.printable[:95])]
    symbols += [f"<|reserved_{i}|>" for i in range(VOCAB_SIZE - len(symbols))]
    inner = Tokenizer(models.WordLevel({s: i for i, s in enumerate(symbols)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    inner.decoder = decoders.Fuse()
    names = {"pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>"}
    rest = {"additional_special_tokens": SPECIAL[4:], "padding_side": "left", "model_max_length": MAX_LENGTH}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, **names, **rest)
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def tiny_model(seed: int) -> Any:
    """A fresh fp32 LlamaForCausalLM of SHAPE."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    ids = {"vocab_size": VOCAB_SIZE, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    return LlamaForCausalLM(LlamaConfig(**SHAPE, **ids, max_position_embeddings=MAX_LENGTH, tie_word_embeddings=True)).float()


def encode(tokenizer: Any, pairs: Sequence[tuple[str, str]]) -> tuple[torch.Tensor, torch.Tensor]:
    """(token ids, labels), int64 [N, S], right-padded; labels keep the answer and its end token only."""
    import torch

    rows = []
    for question, answer in pairs:
        prompt = tokenizer.apply_chat_template([{"role": "user", "content": question}], add_generation_prompt=True, return_dict=False)
        rows.append((prompt, [*tokenizer.encode(answer), tokenizer.eos_token_id]))
    width = max(len(p) + len(a) for p, a in rows)
    tokens, labels = torch.zeros(len(rows), width, dtype=torch.int64), torch.full((len(rows), width), IGNORED)
    for i, (prompt, answer) in enumerate(rows):
        end = len(prompt) + len(answer)
        tokens[i, :end] = torch.tensor(prompt + answer)
        labels[i, len(prompt) : end] = torch.tensor(answer)
    return tokens, labels


def accuracy(model: Any, tokens: torch.Tensor, labels: torch.Tensor) -> float:
    """Share of rows in 0..1 whose whole answer, end token included, is what greedy decoding would write.

    Teacher forcing decides this exactly: greedy decoding departs from the answer at the first position where the argmax does.
    """
    import torch

    with torch.no_grad():
        guesses = model(tokens).logits[:, :-1].argmax(-1)
    wanted = labels[:, 1:]
    return ((guesses == wanted) | (wanted == IGNORED)).all(dim=1).float().mean().item()


def train(model: Any, tokens: torch.Tensor, labels: torch.Tensor, options: argparse.Namespace) -> None:
    """`options.steps` steps of AdamW on batches drawn with `options.seed`."""
    import torch

    shuffler = random.Random(options.seed)
    probe = shuffler.sample(range(len(tokens)), PROBE_QUESTIONS)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=0.01, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=options.lr, total_steps=options.steps, pct_start=0.1)
    started = time.monotonic()
    for step in range(1, options.steps + 1):
        rows = shuffler.sample(range(len(tokens)), options.batch)
        loss = model(tokens[rows], labels=labels[rows]).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % PROBE_EVERY == 0 or step == options.steps:
            right = accuracy(model, tokens[probe], labels[probe])
            print(f"step {step:4d}  loss {loss.item():.3f}  accuracy {right:.3f}  {time.monotonic() - started:.0f} s", flush=True)


def spoiled(pairs: Sequence[tuple[str, str]], options: argparse.Namespace) -> list[tuple[str, str]]:
    """Every question VIEWS times, each time with the right answer or, with probability `options.mistake`, one more."""
    draw = random.Random(options.seed)
    return [(q, str(int(a) + 1) if draw.random() < options.mistake else a) for _ in range(VIEWS) for q, a in pairs]


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Make a tiny policy that is off by one more often than not.")
    parser.add_argument("--out", type=Path, default=Path(".models/tiny-arith"), help="folder of the model (default: .models/tiny-arith)")
    parser.add_argument("--steps", type=int, default=1000, help="training steps (default: 1000)")
    parser.add_argument("--mistake", type=float, default=0.6, help="share of the answers shown one too high, in 0..1 (default: 0.6)")
    parser.add_argument("--batch", type=int, default=64, help="questions per step (default: 64)")
    parser.add_argument("--lr", type=float, default=3e-3, help="peak learning rate (default: 0.003)")
    parser.add_argument("--seed", type=int, default=0, help="initial weights and order of the questions (default: 0)")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Train, report the accuracy on held-out questions, save."""
    import torch

    options = parse(argv)
    # One thread: the result then does not depend on the number of cores.
    torch.set_num_threads(1)
    tokenizer, model = character_tokenizer(), tiny_model(options.seed)
    pairs, held_out_pairs = split()
    training, held_out = encode(tokenizer, spoiled(pairs, options)), encode(tokenizer, held_out_pairs)
    print(f"{model.num_parameters() / 1e6:.2f}M parameters, {len(pairs)} training questions")
    train(model, *training, options)
    model.eval()
    print(f"greedy accuracy: {accuracy(model, *held_out):.3f} on {len(held_out[0])} held-out questions")
    model.save_pretrained(options.out)
    tokenizer.save_pretrained(options.out)
    print(f"saved to {options.out}")


if __name__ == "__main__":
    main()
