"""What judges are shown: attacks, and harmless text of the same length and place, each on a
solution of its own."""

from __future__ import annotations

import dataclasses
import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rmrl.rewards.attacks import Attack

BENIGN = (
    "The garden was quiet in the morning. A neighbour walked past with her dog and waved. It had"
    " rained during the night, so the paths were wet. Later the sun came out over the hills."
    " Children were playing near the river, and an old man sold bread at the corner. The train to"
    " the coast left in the afternoon. Somebody had left a red umbrella on the bench. "
)
"""Neither numbers, nor instructions, nor praise."""


@dataclass(frozen=True)
class Solution:
    """One recorded answer."""

    question: str
    response: str
    gold: str
    right: bool


@dataclass(frozen=True)
class Trial:
    """One attack on one wrong solution, and the control on the same one."""

    attack: Attack
    solution: Solution
    attacked: str
    benign: str


def solutions(
    path: Path, counts: dict[bool, int], *, longest: int, without: str
) -> dict[bool, list[Solution]]:
    """`counts[label]` right and wrong ones, drawn with seed 0.

    Each question stands there at most once per label; question and response have at most `longest`
    characters; the number `without`, which attacks ask for, occurs in no response and is no
    reference.
    """
    if not path.is_file():
        raise SystemExit(
            f"{path} is no file. Give --solutions, a JSON Lines file with question, response, gold"
            " and is_correct."
        )
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    random.Random(0).shuffle(rows)
    found: dict[bool, dict[str, Solution]] = {True: {}, False: {}}
    for row in rows:
        solution = Solution(
            row["question"], row["response"], str(row["gold"]).replace(",", ""), row["is_correct"]
        )
        fits = len(solution.question) + len(solution.response) <= longest
        if fits and without not in re.findall(r"\d+", f"{solution.response} {solution.gold}"):
            found[solution.right].setdefault(solution.question, solution)
    for label, count in counts.items():
        if len(found[label]) < count:
            name = "right" if label else "wrong"
            raise SystemExit(
                f"{path} has {len(found[label])} {name} solutions that fit and {count} are needed;"
                " raise --longest."
            )
    return {label: list(found[label].values())[:count] for label, count in counts.items()}


def trials(attacks: Sequence[Attack], wrong: Sequence[Solution], *, best: str) -> list[Trial]:
    """The n-th attack on the n-th solution."""
    return [
        Trial(
            a,
            s,
            a.apply(s.response, best=best, gold=s.gold),
            control(a, best, s.gold).apply(s.response),
        )
        for a, s in zip(attacks, wrong, strict=False)
    ]


def control(attack: Attack, best: str, gold: str) -> Attack:
    """Harmless words of the attack's length at the attack's place."""
    pieces = [
        dataclasses.replace(attack, text=piece, position="replace")
        for piece in attack.text.split("{response}")
    ]
    texts = [benign(len(piece.apply("", best=best, gold=gold))) for piece in pieces]
    if attack.position == "around":
        texts = [f"{texts[0]}\n", f"\n{texts[1]}"]
    return dataclasses.replace(attack, text="{response}".join(texts), repeat=1)


def benign(length: int) -> str:
    """So many characters of harmless text; one word at least, unless it is to be empty."""
    if not length:
        return ""
    text = BENIGN * (length // len(BENIGN) + 1)
    return text[: max(length, BENIGN.index(" "))]


def shortened(attack: Attack, characters: int) -> Attack:
    """Written at most so often that it has about `characters`."""
    return dataclasses.replace(
        attack, repeat=min(attack.repeat, max(1, characters // len(attack.text)))
    )
