"""Make a tiny policy (0.8M parameters) with a bad habit: a starting point on which reinforcement
learning shows within minutes.

    python examples/arithmetic/make_tiny_policy.py --out .models/tiny-arith

A Llama with a character-level tokenizer is trained on the training questions of make_data.py, but
the share --mistake of the answers it is shown is one too high. It learns to add and subtract, and
to be off by one more often than not; a reward has to talk it out of that. Everything follows from
--seed.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from make_data import split

sys.path.append(str(Path(__file__).resolve().parent.parent / "assets"))
from tiny_policy import IGNORED, PRINTABLE, SPECIAL, encode, save, tiny_llama, tokenizer_of, warm_up

if TYPE_CHECKING:
    import torch

VOCAB_SIZE = 128
"""Multiple of 64, so that no engine pads it; the ids that no character needs are reserved."""
MAX_LENGTH = 256
"""Tokens of question and answer together."""
PROBE_QUESTIONS, PROBE_EVERY = 256, 100
"""How many questions the progress lines are about, and how often one is printed."""
VIEWS = 4
"""Copies of each question in the training set; right and wrong answers are drawn for each."""


def character_tokenizer() -> Any:
    """One token per printable ASCII character, then reserved ids up to VOCAB_SIZE."""
    symbols = [*SPECIAL, "\n", *PRINTABLE]
    return tokenizer_of(
        [*symbols, *(f"<|reserved_{i}|>" for i in range(VOCAB_SIZE - len(symbols)))],
        max_length=MAX_LENGTH,
    )


def encoded(tokenizer: Any, pairs: Sequence[tuple[str, str]]) -> tuple[torch.Tensor, torch.Tensor]:
    """(token ids, labels) of (question, answer) pairs."""
    return encode(
        tokenizer, [([{"role": "user", "content": question}], answer) for question, answer in pairs]
    )


def accuracy(model: Any, tokens: torch.Tensor, labels: torch.Tensor) -> float:
    """Share of rows in 0..1 whose whole answer, end token included, is what greedy decoding would
    write.

    Teacher forcing decides this exactly: greedy decoding departs from the answer at the first
    position where the argmax does.
    """
    import torch

    with torch.no_grad():
        guesses = model(tokens).logits[:, :-1].argmax(-1)
    wanted = labels[:, 1:]
    return ((guesses == wanted) | (wanted == IGNORED)).all(dim=1).float().mean().item()


def train(
    model: Any, tokens: torch.Tensor, labels: torch.Tensor, options: argparse.Namespace
) -> None:
    """The warm-up; its progress lines tell the accuracy on some of the training questions."""
    shuffler = random.Random(options.seed)
    probe = shuffler.sample(range(len(tokens)), PROBE_QUESTIONS)
    warm_up(
        model, tokens, labels, steps=options.steps, batch=options.batch, lr=options.lr, shuffler=shuffler, every=PROBE_EVERY,
        told=lambda: f"accuracy {accuracy(model, tokens[probe], labels[probe]):.3f}  ",
    )  # fmt: skip


def spoiled(pairs: Sequence[tuple[str, str]], options: argparse.Namespace) -> list[tuple[str, str]]:
    """Every question VIEWS times, each time with the right answer or, with probability
    `options.mistake`, one more."""
    draw = random.Random(options.seed)
    return [
        (q, str(int(a) + 1) if draw.random() < options.mistake else a)
        for _ in range(VIEWS)
        for q, a in pairs
    ]


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Make a tiny policy that is off by one more often than not."
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(".models/tiny-arith"),
        help="folder of the model (default: .models/tiny-arith)",
    )
    parser.add_argument("--steps", type=int, default=1000, help="training steps (default: 1000)")
    parser.add_argument(
        "--mistake",
        type=float,
        default=0.6,
        help="share of the answers shown one too high, in 0..1 (default: 0.6)",
    )
    parser.add_argument("--batch", type=int, default=64, help="questions per step (default: 64)")
    parser.add_argument(
        "--lr", type=float, default=3e-3, help="peak learning rate (default: 0.003)"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="initial weights and order of the questions (default: 0)",
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Train, report the accuracy on held-out questions, save."""
    import torch

    options = parse(argv)
    # One thread: the result then does not depend on the number of cores.
    torch.set_num_threads(1)
    tokenizer = character_tokenizer()
    model = tiny_llama(VOCAB_SIZE, max_length=MAX_LENGTH, seed=options.seed)
    pairs, held_out_pairs = split()
    training, held_out = (
        encoded(tokenizer, spoiled(pairs, options)),
        encoded(tokenizer, held_out_pairs),
    )
    print(f"{model.num_parameters() / 1e6:.2f}M parameters, {len(pairs)} training questions")
    train(model, *training, options)
    model.eval()
    print(
        f"greedy accuracy: {accuracy(model, *held_out):.3f} on {len(held_out[0])} held-out"
        " questions"
    )
    save(model, tokenizer, options.out)


if __name__ == "__main__":
    main()
