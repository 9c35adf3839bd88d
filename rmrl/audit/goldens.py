"""A right and a wrong response to each row, in a form that the reward reads.

The right one is the reference in a form for which the reward tells references from those in other
rows. Each row source has its own form: many rewards choose a rule by the source. Where several do
equally well it is the first that the reward still reads with numbers beside it: a reward that reads
a box and falls back on the last number is meant for the box. Where no form does, the two are
responses that people call good and bad.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rmrl.audit.audit_rows import Row, other_answer
from rmrl.audit.made_rows import REASONING
from rmrl.audit.subject import Score, Subject

FORMS: Mapping[str, str] = {
    "####": "#### {}",
    "boxed": "\\boxed{{}}",
    "sentence": "The answer is {}.",
    "tag": "<answer>{}</answer>",
    "final": "Final Answer: {}",
    "boxed in $": "$\\boxed{{}}$",
    "thinking and tag": f"<think>\n{REASONING}\n</think>\n<answer>\n{{}}\n</answer>",
    "thinking and boxed": f"<think>\n{REASONING}\n</think>\n\\boxed{{{{}}}}",
    "reasoning and ####": f"{REASONING}\n#### {{}}",
    "reasoning and boxed": REASONING + " So it is \\boxed{{}}.",
    "Answer": "Answer: {}",
    "JSON": '{"answer": "{}"}',
    "plain": "{}",
}
"""Name -> template, in which "{}" stands for the answer."""
LABELLED = "responses that people labelled"
BESIDE = ("There are 3 facts and 17 words. ", "\nI have checked this 3 times, in 97 seconds.")
"""Text with numbers before and behind an answer."""
_TRIED = 16
"""Rows of a source on which the forms are tried."""
_FEW = 4
_MUCH_BETTER = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """One row with its right and its wrong response."""

    row: Row
    template: str
    """"" where the texts are people's."""
    right_text: str
    wrong_text: str
    other: str
    """The wrong answer, "" where the texts are people's."""
    right: Score
    wrong: Score

    @property
    def usable(self) -> bool:
        """Whether the reward tells the two from each other."""
        return self.right.value > self.wrong.value

    def text(self, answer: str) -> str:
        """Return an answer in the form."""
        return self.template.replace("{}", answer)


@dataclass(frozen=True, slots=True)
class Goldens:
    """Right and wrong responses to all rows that have some."""

    forms: Mapping[str, str]
    """Source -> its form. {} where the texts are people's."""
    rows: tuple[Golden, ...]

    @property
    def form(self) -> str:
        """All forms' names."""
        return " and ".join(sorted(set(self.forms.values()))) or LABELLED

    @property
    def usable(self) -> list[Golden]:
        """Those that the reward tells from each other: only they show what else changes a score."""
        return [golden for golden in self.rows if golden.usable]


async def find_goldens(subject: Subject, rows: Sequence[Row]) -> Goldens:
    """Try the forms on each source's first rows, and score all rows in the best one."""
    by_source: dict[str, list[Row]] = {}
    for row in rows:
        if row.answer:
            by_source.setdefault(row.prompt.data_source, []).append(row)
    forms: dict[str, str] = {}
    best = 0.0
    tried = max(_FEW, _TRIED // max(len(by_source), 1))
    for source, several in by_source.items():
        forms[source], wins = await _form(subject, several, tried)
        best = max(best, wins)
    # Where no form is read, every row whose labels differ is a chance.
    labelled = await _labelled(subject, rows[:_TRIED] if best else rows)
    if labelled:
        share = sum(golden.usable for golden in labelled) / len(labelled)
        if share > best + _MUCH_BETTER or not forms:
            return Goldens({}, tuple(await _labelled(subject, rows)))
    goldens: list[Golden] = []
    for source, several in by_source.items():
        goldens += await _scored(subject, several, FORMS[forms[source]])
    return Goldens(forms, tuple(goldens))


async def _form(subject: Subject, rows: Sequence[Row], count: int) -> tuple[str, float]:
    """Return the best form, and the share of rows on which it tells right from wrong. Where none
    does, the form in which right responses score highest is the best."""
    wins: dict[str, tuple[float, int, float]] = {}
    for form, template in FORMS.items():
        goldens = await _scored(subject, rows[:count], template)
        usable = [golden for golden in goldens if golden.usable]
        read = 0
        if len(usable) == len(goldens):
            few = usable[:_FEW]
            before = [golden.row.case(BESIDE[0] + golden.right_text) for golden in few]
            behind = [golden.row.case(golden.right_text + BESIDE[1]) for golden in few]
            scores = await subject.score(before + behind)
            read = sum(s.value > g.wrong.value for s, g in zip(scores, few * 2, strict=True))
            if read == len(scores):
                return form, 1.0
        rights = [golden.right.value for golden in goldens if not math.isnan(golden.right.value)]
        wins[form] = (len(usable) / len(goldens), read, max(rights, default=-math.inf))
    form = max(wins, key=wins.__getitem__)
    return form, wins[form][0]


async def _scored(subject: Subject, rows: Sequence[Row], template: str) -> list[Golden]:
    others = [other_answer(rows, position) for position in range(len(rows))]
    rights = [template.replace("{}", row.answer) for row in rows]
    wrongs = [template.replace("{}", other) for other in others]
    return await _goldens(subject, template, list(zip(rows, rights, wrongs, others, strict=True)))


async def _labelled(subject: Subject, rows: Sequence[Row]) -> list[Golden]:
    chosen = [
        (row, row.first(True) or "", row.first(False) or "", "")
        for row in rows
        if None not in (row.first(True), row.first(False))
    ]
    return await _goldens(subject, "", chosen)


async def _goldens(
    subject: Subject, template: str, chosen: Sequence[tuple[Row, str, str, str]]
) -> list[Golden]:
    """`chosen`: rows with their right text, wrong text and wrong answer."""
    cases = [row.case(text) for row, right, wrong, _ in chosen for text in (right, wrong)]
    scores = iter(await subject.score(cases))
    return [
        Golden(
            row=row,
            template=template,
            right_text=right,
            wrong_text=wrong,
            other=other,
            right=next(scores),
            wrong=next(scores),
        )
        for row, right, wrong, other in chosen
    ]
