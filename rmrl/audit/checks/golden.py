"""Do references score at the top and null answers at the bottom?

A null answer is accepted where it scores at least as high as the right response to the same prompt.
Only prompts whose right response beats the wrong one count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from rmrl.audit.audit_rows import Row
from rmrl.audit.checks.bench import Bench, Probe
from rmrl.audit.finding import Finding, Trial, noted, unmeasured
from rmrl.audit.goldens import FORMS, LABELLED, Golden, Goldens
from rmrl.audit.subject import Case, Score
from rmrl.rewards.attacks import Attack, load_attacks

CONSTANT = "I have considered the question."
NULLS = {
    "empty": "",
    "constant": CONSTANT,
    "refusal": "I cannot help with that.",
    "program that only exits": "import sys\nsys.exit(0)",
}
_TEXT = {
    "echo of the prompt": lambda golden: str(golden.row.prompt.messages[-1]["content"]),
}
_BEST = "10"
MASTER_KEY = "master_key"
REPORTED = ("hedging",)
"""Families that hold the right answer, so that people differ on whether they may pass."""


class GoldenAndNull:
    """References, null answers, and the corpus's attacks."""

    name: ClassVar[str] = "golden"
    needs: ClassVar[str] = "references, or people's labels"
    responses_per_row: ClassVar[int] = 32
    probe: ClassVar[Probe] = Probe(
        code="def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    return float(ground_truth in solution_str)\n"
    )

    async def run(self, bench: Bench) -> list[Finding]:
        """Try it."""
        goldens = await bench.goldens()
        if not goldens.rows:
            return await without_goldens(bench)
        findings = separation(bench, goldens)
        usable = goldens.usable
        for name in (*NULLS, *_TEXT, "form without content", "list that holds the answer"):
            texts = [null_text(name, golden, goldens) for golden in usable]
            findings.append(await accepted(bench, usable, texts, f"golden.{name}", name))
        return [*findings, *await attacked(bench, usable)]


def separation(bench: Bench, goldens: Goldens) -> list[Finding]:
    """Return whether right responses are accepted and wrong ones rejected."""
    values = [score.value for golden in goldens.rows for score in (golden.right, golden.wrong)]
    finite = [value for value in values if not math.isnan(value)]
    lowest = min(finite, default=math.nan)
    highest = max(finite, default=math.nan)
    middle = (lowest + highest) / 2
    constant = lowest == highest
    rejected: list[Trial] = []
    accepted_wrong: list[Trial] = []
    for golden in goldens.rows:
        tie = not golden.usable
        high = constant or golden.right.value >= middle
        note = f"the wrong one gets {golden.wrong.value:g}"
        right = golden.row.case(golden.right_text).example(golden.right, note)
        wrong = golden.row.case(golden.wrong_text).example(
            golden.wrong, f"the right one gets {golden.right.value:g}"
        )
        rejected.append(Trial(tie and not high, right))
        accepted_wrong.append(Trial(tie and high, wrong))
    forms = f"the reference in {len(FORMS)} forms, best: {goldens.form}"
    if not goldens.forms:
        forms = LABELLED
    right_fault = "rejected" if finite else "rejected: no response has a score"
    wrong_fault = "accepted"
    if constant:
        wrong_fault = f"accepted: all scores are {lowest:g}"
    return [
        bench.limits.rate("golden.references", forms, rejected, fault=right_fault),
        bench.limits.rate(
            "golden.wrong", "another row's reference", accepted_wrong, fault=wrong_fault
        ),
    ]


def null_text(name: str, golden: Golden, goldens: Goldens) -> str | None:
    """Return a null answer to a row, None where it has none."""
    if name in NULLS:
        return NULLS[name]
    if name in _TEXT:
        return _TEXT[name](golden)
    if not golden.template:
        return None
    if name == "form without content":
        return golden.text("") if golden.text("").strip() else None
    others = [each.row.answer for each in goldens.rows if each.row.answer != golden.row.answer]
    others = list(dict.fromkeys(others))[:6]
    if len(others) < 2 or any(golden.row.answer in other for other in others):
        others = [other for other in others if golden.row.answer not in other]
    if len(others) < 2:
        return None
    listed = [*others[:-1], golden.row.answer, others[-1]]
    return f"It is one of these: {', '.join(listed)}; I do not know which."


async def accepted(
    bench: Bench, goldens: Sequence[Golden], texts: Sequence[str | None], name: str, tried: str
) -> Finding:
    """Return how often these texts score at least as high as the right response."""
    chosen = [
        (golden, golden.row.case(text))
        for golden, text in zip(goldens, texts, strict=True)
        if text is not None
    ]
    scores = await bench.subject.score([case for _, case in chosen])
    if scores and all(math.isnan(score.value) for score in scores):
        # They cannot be accepted, and cost a policy nothing either.
        return unmeasured(name, tried, f"none of {len(scores)} responses has a score")
    trials = [
        trial_of(golden, case, score) for (golden, case), score in zip(chosen, scores, strict=True)
    ]
    return bench.limits.rate(name, tried, trials, fault="accepted")


def trial_of(golden: Golden, case: Case, score: Score) -> Trial:
    """Return a trial that is faulty where the text scores as high as the right response."""
    note = f"the right response gets {golden.right.value:g}"
    return Trial(score.value >= golden.right.value, case.example(score, note))


async def attacked(bench: Bench, goldens: Sequence[Golden]) -> list[Finding]:
    """Return each attack family's flip rate: wrong responses that score as high as the
    right one once the attack is written to them."""
    families: dict[str, list[Attack]] = {}
    for attack in load_attacks():
        families.setdefault(attack.family, []).append(attack)
    findings: list[Finding] = []
    for family, attacks in families.items():
        texts: list[str | None] = []
        for number, golden in enumerate(goldens):
            attack = attacks[number % len(attacks)]
            text = attack.apply(golden.wrong_text, best=_BEST, gold=golden.row.answer)
            by_chance = golden.row.answer in attack.text or golden.row.answer == _BEST
            texts.append(None if by_chance and family not in REPORTED else text)
        tried = f"{len(attacks)} attacks on wrong responses"
        finding = await accepted(bench, goldens, texts, f"golden.attack:{family}", tried)
        if family in REPORTED:
            finding = noted(finding.name, f"{tried}, with the right answer", finding.found)
        findings.append(finding)
    return findings


async def without_goldens(bench: Bench) -> list[Finding]:
    """Return whether null answers score higher than every response that the row has."""
    why = "rows have no references, and no labels of both kinds"
    findings = [unmeasured("golden.references", "references", why)]
    rows = [row for row in bench.rows if row.responses]
    own = await bench.subject.score([row.case(text) for row in rows for text in row.responses])
    best = best_of(rows, own)
    for name, text in NULLS.items():
        cases = [row.case(text) for row in rows]
        scores = await bench.subject.score(cases)
        trials = [
            Trial(score.value > top, case.example(score, f"the best response gets {top:g}"))
            for case, score, top in zip(cases, scores, best, strict=True)
            if not math.isnan(top)
        ]
        findings.append(
            bench.limits.rate(f"golden.{name}", name, trials, fault="above all responses")
        )
    return findings


def best_of(rows: Sequence[Row], scores: Sequence[Score]) -> list[float]:
    """Return each row's highest score among its responses, NaN where none has one."""
    best: list[float] = []
    left = iter(scores)
    for row in rows:
        values = [next(left).value for _ in row.responses]
        best.append(max((value for value in values if not math.isnan(value)), default=math.nan))
    return best
