"""A right and a wrong response to each row, in a form that the reward reads.

The right one is the reference in the first form for which the reward tells references from those
in other rows. Where no form does, the two are responses that people call good and bad.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rmrl.audit.audit_rows import Row, other_answer
from rmrl.audit.subject import Case, Score, Subject

FORMS: Mapping[str, str] = {
    "####": "#### {}",
    "boxed": "\\boxed{{}}",
    "sentence": "The answer is {}.",
    "tag": "<answer>{}</answer>",
    "final": "Final Answer: {}",
    "boxed in $": "$\\boxed{{}}$",
    "thinking and tag": "<think>\nI work it out step by step.\n</think>\n<answer>\n{}\n</answer>",
    "reasoning and ####": "I work it out step by step, and check it.\n#### {}",
    "reasoning and boxed": "I work it out step by step, and check it. So it is \\boxed{{}}.",
    "Answer": "Answer: {}",
    "JSON": '{"answer": "{}"}',
    "plain": "{}",
}
"""Name -> template, in which "{}" stands for the answer."""
LABELLED = "responses that people labelled"
_TRIED = 16
"""Rows on which the forms are tried."""
_MUCH_BETTER = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """One row with its right and its wrong response."""

    row: Row
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


@dataclass(frozen=True, slots=True)
class Goldens:
    """Right and wrong responses to all rows that have some."""

    form: str
    template: str
    """"" where the texts are people's."""
    rows: tuple[Golden, ...]

    @property
    def usable(self) -> list[Golden]:
        """Those that the reward tells from each other: only they show what else changes a score."""
        return [golden for golden in self.rows if golden.usable]

    def text(self, answer: str) -> str:
        """Return an answer in the form."""
        return self.template.replace("{}", answer)


async def find_goldens(subject: Subject, rows: Sequence[Row]) -> Goldens:
    """Try the forms on the first rows, and score all rows in the best one."""
    with_answer = [row for row in rows if row.answer]
    wins = dict.fromkeys(FORMS, 0.0)
    for form, template in FORMS.items():
        tried = await _scored(subject, with_answer[:_TRIED], template)
        if tried:
            wins[form] = sum(golden.usable for golden in tried) / len(tried)
        if wins[form] == 1:
            break
    form = max(wins, key=wins.__getitem__)
    labelled = await _labelled(subject, rows[:_TRIED])
    if labelled:
        share = sum(golden.usable for golden in labelled) / len(labelled)
        if share > wins[form] + _MUCH_BETTER or not with_answer:
            return Goldens(LABELLED, "", tuple(await _labelled(subject, rows)))
    template = FORMS[form]
    return Goldens(form, template, tuple(await _scored(subject, with_answer, template)))


async def _scored(subject: Subject, rows: Sequence[Row], template: str) -> list[Golden]:
    others = [other_answer(rows, position) for position in range(len(rows))]
    rights = [row.case(template.replace("{}", row.answer)) for row in rows]
    wrongs = [
        row.case(template.replace("{}", other)) for row, other in zip(rows, others, strict=True)
    ]
    return await _goldens(subject, rows, rights, wrongs, others)


async def _labelled(subject: Subject, rows: Sequence[Row]) -> list[Golden]:
    chosen = [row for row in rows if row.first(True) and row.first(False)]
    rights = [row.case(row.first(True) or "") for row in chosen]
    wrongs = [row.case(row.first(False) or "") for row in chosen]
    return await _goldens(subject, chosen, rights, wrongs, [""] * len(chosen))


async def _goldens(
    subject: Subject,
    rows: Sequence[Row],
    rights: Sequence[Case],
    wrongs: Sequence[Case],
    others: Sequence[str],
) -> list[Golden]:
    pairs = [case for pair in zip(rights, wrongs, strict=True) for case in pair]
    scores = await subject.score(pairs)
    return [
        Golden(
            row=row,
            right_text=rights[n].text,
            wrong_text=wrongs[n].text,
            other=others[n],
            right=scores[2 * n],
            wrong=scores[2 * n + 1],
        )
        for n, row in enumerate(rows)
    ]
