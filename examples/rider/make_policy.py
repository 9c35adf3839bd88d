"""Make a tiny policy (0.8M parameters) that sometimes writes the JSON reply of the courier-support task in the right form.

    python examples/rider/make_policy.py --out .models/tiny-rider

A Llama over the characters of make_data.py is trained on generated dialogues, and the share --mistake of the replies it is shown breaks
the form: a key is missing, a number does not exist, the agreement is made up, the JSON ends too early. A reward that counts only where
the form is right then has something to open. So short a training leaves slips of its own. It stands in for an instruct model that a
small machine cannot train. Everything follows from --seed; no dialogue of dialogues.jsonl is shown.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import string
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from make_data import rows

if TYPE_CHECKING:
    import torch

SPECIAL = ["<pad>", "<bos>", "<eos>", "<unk>", "<|system|>", "<|user|>", "<|assistant|>"]
MAX_LENGTH = 8192
"""Positions: as many as the reference command line asks for (6144 for the prompt, 2048 for the reply)."""
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}{% if m['role'] == 'assistant' %}{{ eos_token }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
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
DATA_SEED = 1_000_003
"""Added to --seed: the dialogues are others than those of make_data.py with the same seed."""


def character_tokenizer(texts: Sequence[str]) -> Any:
    """One token per character of `texts` and of printable ASCII, then private characters up to a multiple of 64: no engine pads that."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    characters = sorted(set("".join(texts)) | set(string.printable[:95]) | {"\n"})
    symbols = [*SPECIAL, *characters]
    symbols += [chr(0xE000 + i) for i in range(-len(symbols) % 64)]
    inner = Tokenizer(models.WordLevel({s: i for i, s in enumerate(symbols)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    inner.decoder = decoders.Fuse()
    names = {"pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>"}
    rest = {"additional_special_tokens": SPECIAL[4:], "padding_side": "left", "model_max_length": MAX_LENGTH}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, **names, **rest)
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def tiny_model(vocabulary: int, seed: int) -> Any:
    """A fresh fp32 LlamaForCausalLM of SHAPE."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    ids: dict[str, Any] = {"vocab_size": vocabulary, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    return LlamaForCausalLM(LlamaConfig(**SHAPE, **ids, max_position_embeddings=MAX_LENGTH, tie_word_embeddings=True)).float()


def lost_key(reply: dict[str, Any]) -> str:
    """The reply without its last key."""
    return written({key: reply[key] for key in list(reply)[:-1]})


def strange_number(reply: dict[str, Any]) -> str:
    """The reply with a rule that does not exist."""
    return written(reply | {"RelevantConstraintRuleNumber": [0]})


def strange_agreement(reply: dict[str, Any]) -> str:
    """The reply with an agreement that is not one of the three."""
    return written(reply | {"DialogueAgreeSolution": "无"})


def unfinished(reply: dict[str, Any]) -> str:
    """The reply without its closing brace."""
    return written(reply)[:-1]


DEFECTS: tuple[Callable[[dict[str, Any]], str], ...] = (lost_key, strange_number, strange_agreement, unfinished)


def written(reply: Mapping[str, Any]) -> str:
    """A reply as the policy is to write it."""
    return json.dumps(reply, ensure_ascii=False)


def samples(count: int, *, mistake: float, seed: int) -> list[tuple[list[dict[str, str]], str]]:
    """(messages, reply) of `count` dialogues; with probability `mistake` a reply breaks the form."""
    draw = random.Random(seed)
    found = []
    for row in itertools.islice(rows(DATA_SEED + seed), count):
        spoil = draw.choice(DEFECTS) if draw.random() < mistake else written
        found.append((row["input"], spoil(row["target"])))
    return found


def encode(tokenizer: Any, pairs: Sequence[tuple[list[dict[str, str]], str]]) -> tuple[torch.Tensor, torch.Tensor]:
    """(token ids, labels), int64 [N, S], right-padded; labels keep the reply and its end token only."""
    import torch

    encoded = []
    for messages, reply in pairs:
        prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        encoded.append((prompt, [*tokenizer.encode(reply), tokenizer.eos_token_id]))
    width = max(len(p) + len(a) for p, a in encoded)
    tokens, labels = torch.zeros(len(encoded), width, dtype=torch.int64), torch.full((len(encoded), width), IGNORED)
    for i, (prompt, reply) in enumerate(encoded):
        end = len(prompt) + len(reply)
        tokens[i, :end] = torch.tensor(prompt + reply)
        labels[i, len(prompt) : end] = torch.tensor(reply)
    return tokens, labels


def train(model: Any, tokens: torch.Tensor, labels: torch.Tensor, options: argparse.Namespace) -> None:
    """`options.steps` steps of AdamW on batches drawn with `options.seed`."""
    import torch

    shuffler, started = random.Random(options.seed), time.monotonic()
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=0.01, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=options.lr, total_steps=options.steps, pct_start=0.1)
    for step in range(1, options.steps + 1):
        chosen = shuffler.sample(range(len(tokens)), options.batch)
        loss = model(tokens[chosen], labels=labels[chosen]).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 25 == 0 or step == options.steps:
            print(f"step {step:4d}  loss {loss.item():.3f}  {time.monotonic() - started:.0f} s", flush=True)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Make a tiny policy that sometimes writes the JSON reply in the right form.")
    parser.add_argument("--out", type=Path, default=Path(".models/tiny-rider"), help="folder of the model (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=240, help="training steps (default: %(default)s)")
    parser.add_argument("--samples", type=int, default=1600, help="dialogues to train on (default: %(default)s)")
    parser.add_argument("--mistake", type=float, default=0.5, help="share of replies shown that break the form (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=8, help="dialogues per step (default: %(default)s)")
    parser.add_argument("--lr", type=float, default=3e-3, help="peak learning rate (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="initial weights, dialogues and their order (default: %(default)s)")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Train and save."""
    import torch

    options = parse(argv)
    # One thread: the result then does not depend on the number of cores.
    torch.set_num_threads(1)
    pairs = samples(options.samples, mistake=options.mistake, seed=options.seed)
    tokenizer = character_tokenizer([text for messages, reply in pairs for text in (*(m["content"] for m in messages), reply)])
    model = tiny_model(len(tokenizer), options.seed)
    print(f"{model.num_parameters() / 1e6:.2f}M parameters, {len(tokenizer)} tokens, {len(pairs)} dialogues")
    train(model, *encode(tokenizer, pairs), options)
    model.eval()
    model.save_pretrained(options.out)
    tokenizer.save_pretrained(options.out)
    print(f"saved to {options.out}")


if __name__ == "__main__":
    main()
