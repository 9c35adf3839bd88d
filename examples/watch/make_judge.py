"""Make a weak judge for the policy of examples/arithmetic: a scalar reward model of 0.8M parameters
that has seen one mistake alone.

    python examples/watch/make_judge.py --policy .models/tiny-arith --out .models/tiny-arith-judge

The policy's body with a head of one label is trained on pairs of answers to the training questions
of make_data.py, the right one and the one that is one too high, which is the mistake the policy
makes. The loss is that of Bradley and Terry, -log sigmoid(s(right) - s(wrong)). Everything follows
from --seed. At the end it is told how the judge rates, on held-out questions, mistakes that it was
never shown.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.append(str(Path(__file__).resolve().parent.parent / "arithmetic"))
from make_data import split

if TYPE_CHECKING:
    import torch

MISTAKE = 1
"""What a wrong answer of the training pairs is above the right one."""
OFFSETS = (-20, -10, -5, -2, -1, 0, 1, 2, 5, 10, 20)
"""Answers about which the last lines tell the judge's mean score, as differences from the right
one."""


def off_by(pairs: Sequence[tuple[str, str]], offset: int) -> list[tuple[str, str]]:
    """(question, answer + offset) of (question, answer) pairs."""
    return [(question, str(int(answer) + offset)) for question, answer in pairs]


def encoded(tokenizer: Any, pairs: Sequence[tuple[str, str]]) -> dict[str, torch.Tensor]:
    """input_ids and attention_mask of the conversations, int64 [N, S], right-padded, as the kind
    bradley_terry renders them."""
    import torch

    rows: list[list[int]] = []
    for question, answer in pairs:
        turns = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        rows.append(tokenizer.apply_chat_template(turns, return_dict=False))
    shape = (len(rows), max(map(len, rows)))
    tokens = torch.full(shape, tokenizer.pad_token_id)
    mask = torch.zeros(shape, dtype=torch.int64)
    for i, row in enumerate(rows):
        tokens[i, : len(row)] = torch.tensor(row)
        mask[i, : len(row)] = 1
    return {"input_ids": tokens, "attention_mask": mask}


def scores(judge: Any, tokenizer: Any, pairs: Sequence[tuple[str, str]]) -> torch.Tensor:
    """The judge's logits for (question, answer) pairs, shape [N]."""
    return judge(**encoded(tokenizer, pairs)).logits[:, 0]


def train(judge: Any, tokenizer: Any, options: argparse.Namespace) -> None:
    """AdamW on batches of training questions, each with its right and its wrong answer."""
    import torch

    right, _ = split()
    wrong = off_by(right, MISTAKE)
    shuffler = random.Random(options.seed)
    optimizer = torch.optim.AdamW(judge.parameters(), lr=options.lr, weight_decay=0.01)
    for step in range(1, options.steps + 1):
        rows = shuffler.sample(range(len(right)), options.batch)
        both = scores(judge, tokenizer, [right[i] for i in rows] + [wrong[i] for i in rows])
        margin_N = both[: options.batch] - both[options.batch :]
        loss = -torch.nn.functional.logsigmoid(margin_N).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(judge.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 50 == 0 or step == options.steps:
            print(f"step {step:4d}  loss {loss.item():.3f}", flush=True)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Make a judge of small sums that has seen one mistake alone."
    )
    parser.add_argument(
        "--policy",
        type=Path,
        default=Path(".models/tiny-arith"),
        help="folder of the policy, whose weights it starts from (default: .models/tiny-arith)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(".models/tiny-arith-judge"),
        help="folder of the judge (default: .models/tiny-arith-judge)",
    )
    parser.add_argument("--steps", type=int, default=300, help="training steps (default: 300)")
    parser.add_argument("--batch", type=int, default=64, help="questions per step (default: 64)")
    parser.add_argument("--lr", type=float, default=5e-4, help="learning rate (default: 0.0005)")
    parser.add_argument(
        "--seed", type=int, default=0, help="the head and the order of questions (default: 0)"
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Train, tell what the judge knows and what it only believes, save."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    options = parse(argv)
    # One thread: the result then does not depend on the number of cores.
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    tokenizer = AutoTokenizer.from_pretrained(options.policy)
    judge = AutoModelForSequenceClassification.from_pretrained(options.policy, num_labels=1)
    train(judge.train(), tokenizer, options)
    judge.eval()
    _, held_out = split()
    with torch.no_grad():
        right_N = scores(judge, tokenizer, held_out)
        better = (right_N > scores(judge, tokenizer, off_by(held_out, MISTAKE))).float().mean()
        print(f"prefers the right answer to one that is {MISTAKE} too high on {better:.3f} of")
        print(f"{len(held_out)} held-out questions; mean scores of other answers to them:")
        for offset in OFFSETS:
            mean = scores(judge, tokenizer, off_by(held_out, offset)).mean()
            print(f"  right {offset:+3d}: {mean:+.2f}")
    judge.save_pretrained(options.out)
    tokenizer.save_pretrained(options.out)
    print(f"saved to {options.out}")


if __name__ == "__main__":
    main()
