"""Make a tiny policy (0.8M parameters) that sometimes writes the JSON reply of the courier-support
task in the right form.

    python examples/rider/make_policy.py --out .models/tiny-rider

A Llama over the characters of make_data.py is trained on generated dialogues, and the share
--mistake of the replies it is shown breaks the form: a key is missing, a number does not exist, the
agreement is made up, the JSON ends too early. A reward that counts only where the form is right
then has something to open. So short a training leaves slips of its own. It stands in for an
instruct model that a small machine cannot train. Everything follows from --seed; no dialogue of
dialogues.jsonl is shown.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from make_data import rows

sys.path.append(str(Path(__file__).resolve().parent.parent / "assets"))
from tiny_policy import PRINTABLE, SPECIAL, encode, save, tiny_llama, tokenizer_of, warm_up

MAX_LENGTH = 8192
"""Positions: as many as the reference command line asks for (6144 for the prompt, 2048 for the
reply)."""
PROGRESS_EVERY = 25
"""Steps between two lines of progress."""
DATA_SEED = 1_000_003
"""Added to --seed: the dialogues are others than those of make_data.py with the same seed."""


def character_tokenizer(texts: Sequence[str]) -> Any:
    """One token per character of `texts` and of printable ASCII, then private characters up to a
    multiple of 64: no engine pads that."""
    symbols = [*SPECIAL, *sorted(set("".join(texts)) | set(PRINTABLE) | {"\n"})]
    return tokenizer_of(
        [*symbols, *(chr(0xE000 + i) for i in range(-len(symbols) % 64))], max_length=MAX_LENGTH
    )


def tiny_model(vocabulary: int, seed: int) -> Any:
    """A fresh policy with room for MAX_LENGTH tokens."""
    return tiny_llama(vocabulary, max_length=MAX_LENGTH, seed=seed)


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


DEFECTS: tuple[Callable[[dict[str, Any]], str], ...] = (
    lost_key,
    strange_number,
    strange_agreement,
    unfinished,
)


def written(reply: Mapping[str, Any]) -> str:
    """A reply as the policy is to write it."""
    return json.dumps(reply, ensure_ascii=False)


def samples(count: int, *, mistake: float, seed: int) -> list[tuple[list[dict[str, str]], str]]:
    """(messages, reply) of `count` dialogues; with probability `mistake` a reply breaks the
    form."""
    draw = random.Random(seed)
    found = []
    for row in itertools.islice(rows(DATA_SEED + seed), count):
        spoil = draw.choice(DEFECTS) if draw.random() < mistake else written
        found.append((row["input"], spoil(row["target"])))
    return found


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Make a tiny policy that sometimes writes the JSON reply in the right form."
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(".models/tiny-rider"),
        help="folder of the model (default: %(default)s)",
    )
    parser.add_argument(
        "--steps", type=int, default=240, help="training steps (default: %(default)s)"
    )
    parser.add_argument(
        "--samples", type=int, default=1600, help="dialogues to train on (default: %(default)s)"
    )
    parser.add_argument(
        "--mistake",
        type=float,
        default=0.5,
        help="share of replies shown that break the form (default: %(default)s)",
    )
    parser.add_argument(
        "--batch", type=int, default=8, help="dialogues per step (default: %(default)s)"
    )
    parser.add_argument(
        "--lr", type=float, default=3e-3, help="peak learning rate (default: %(default)s)"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="initial weights, dialogues and their order (default: %(default)s)",
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Train and save."""
    import torch

    options = parse(argv)
    # One thread: the result then does not depend on the number of cores.
    torch.set_num_threads(1)
    pairs = samples(options.samples, mistake=options.mistake, seed=options.seed)
    tokenizer = character_tokenizer(
        [text for messages, reply in pairs for text in (*(m["content"] for m in messages), reply)]
    )
    model = tiny_model(len(tokenizer), options.seed)
    print(
        f"{model.num_parameters() / 1e6:.2f}M parameters, {len(tokenizer)} tokens, {len(pairs)}"
        " dialogues"
    )
    shuffler = random.Random(options.seed)
    settings = {
        "steps": options.steps,
        "batch": options.batch,
        "lr": options.lr,
        "every": PROGRESS_EVERY,
    }
    warm_up(model, *encode(tokenizer, pairs), **settings, shuffler=shuffler)
    model.eval()
    save(model, tokenizer, options.out)


if __name__ == "__main__":
    main()
