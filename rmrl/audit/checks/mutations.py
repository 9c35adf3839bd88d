"""Edits of right responses that must not matter, and edits that must.

An edit that must not matter is faulty where the edited response scores no higher than the wrong
one. One that must is faulty where it scores at least as high as the right one. An edit counts only
where the reward accepts its control: a reward that reads nothing but a bare answer is not blamed
for the numbers of a reasoning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rmrl.audit.checks.bench import Bench, Probe
from rmrl.audit.checks.golden import accepted
from rmrl.audit.finding import Finding, Trial, noted, unmeasured
from rmrl.audit.goldens import FORMS, Golden, Goldens
from rmrl.audit.subject import Score

Edit = Callable[[Golden, Goldens], str | None]
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_REASONING = "I read the question, and write down what is known. Then I work it out step by step. "
_LONG = _REASONING * 80
_WITH_NUMBERS = "Step 1: there are 3 facts and 17 words. Step 2: I check 5 cases. "
_REMARK = "\nI have checked this, and it holds."
_REMARK_WITH_NUMBERS = "\nI have checked this 3 times, in 97 seconds."


@dataclass(frozen=True, slots=True)
class Kept:
    """An edit that must not matter."""

    edit: Edit
    control: str = ""
    """Edit that the reward must accept for this one to count."""
    note: bool = False
    """People differ on whether it may matter, so its rate decides nothing."""


def number_edit(edit: Callable[[str], str]) -> Edit:
    """Return an edit of answers that are numbers."""

    def apply(golden: Golden, goldens: Goldens) -> str | None:
        if not _NUMBER.fullmatch(golden.row.answer):
            return None
        return goldens.text(edit(golden.row.answer))

    return apply


def _around(before: str = "", after: str = "") -> Edit:
    return lambda golden, _: f"{before}{golden.right_text}{after}"


def latex(golden: Golden, goldens: Goldens) -> str | None:
    """The answer as LaTeX."""
    template = "${}$"
    if golden.row.answer.isalpha():
        template = "\\text{{}}"
    return wrapped(golden, goldens, template)


def wrapped(golden: Golden, goldens: Goldens, template: str) -> str | None:
    """The answer in a template, in the form."""
    return goldens.text(template.replace("{}", golden.row.answer))


def next_digit(match: re.Match[str]) -> str:
    """Another digit than the matched one, and not 0."""
    return str(int(match[0]) % 9 + 1)


def negated(golden: Golden, goldens: Goldens) -> str | None:
    """The answer, if it is words, with a "not"."""
    if not golden.row.answer.replace(" ", "").isalpha():
        return None
    return goldens.text(f"not {golden.row.answer}")


def wrong_end(golden: Golden, goldens: Goldens) -> str | None:
    """A reasoning that names the right answer, and a wrong one at the end."""
    if not golden.other:
        return None
    reasoning = f"By the steps above the result so far is {golden.row.answer}, and I go on.\n"
    return reasoning + goldens.text(golden.other)


KEPT: dict[str, Kept] = {
    "white space": Kept(_around("\n\n ", " \n\n")),
    "windows line ends": Kept(_around("", "\r\n")),
    "reasoning before": Kept(_around(_REASONING), note=True),
    "reasoning with numbers before": Kept(_around(_WITH_NUMBERS), "reasoning before"),
    "long reasoning before": Kept(_around(_LONG), "reasoning before"),
    "remark behind": Kept(_around("", _REMARK), note=True),
    "remark with numbers behind": Kept(_around("", _REMARK_WITH_NUMBERS), "remark behind"),
    "decimals": Kept(number_edit(lambda answer: f"{float(answer):.1f}"), note=True),
    "unit": Kept(number_edit("{} apples".format), note=True),
    "currency": Kept(number_edit("${}".format), note=True),
    "thousands": Kept(number_edit(lambda answer: f"{float(answer):,g}"), note=True),
    "capitals": Kept(lambda golden, _: golden.right_text.upper(), note=True),
    "LaTeX": Kept(latex, note=True),
    "bold": Kept(lambda golden, goldens: wrapped(golden, goldens, "**{}**"), note=True),
}
CHANGED: dict[str, Edit] = {
    "last digit": number_edit(lambda answer: answer[:-1] + str((int(answer[-1]) + 1) % 10)),
    "first digit": number_edit(lambda answer: re.sub(r"\d", next_digit, answer, count=1)),
    "digit behind": number_edit("{}0".format),
    "digit before": number_edit(lambda answer: re.sub(r"(\d)", r"1\1", answer, count=1)),
    "sign": number_edit(lambda answer: answer[1:] if answer[0] == "-" else f"-{answer}"),
    "fraction": number_edit(lambda answer: f"{float(answer) + 0.5:.1f}"),
    "negation": negated,
    "wrong end of right reasoning": wrong_end,
}


class Mutations:
    """Both kinds of edits."""

    name: ClassVar[str] = "mutations"
    needs: ClassVar[str] = "references"
    responses_per_row: ClassVar[int] = len(KEPT) + len(CHANGED) + 3
    probe: ClassVar[Probe] = Probe(
        code="import re\n"
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    found = re.search(r'\\d+', solution_str)\n"
        "    return float(bool(found) and found[0] == ground_truth)\n"
    )

    async def run(self, bench: Bench) -> list[Finding]:
        """Try it."""
        goldens = await bench.goldens()
        if not goldens.template:
            why = "rows have no references in a form that this reward reads"
            return [unmeasured("mutations.digits", "edits of references", why)]
        usable = goldens.usable
        findings: list[Finding] = []
        holds: dict[str, set[int]] = {}
        for name in KEPT:
            findings.append(await _kept(bench, usable, goldens, name, holds))
        for name, edit in CHANGED.items():
            texts = [edit(golden, goldens) for golden in usable]
            findings.append(await accepted(bench, usable, texts, f"mutations.{name}", name))
        return [*findings, await _forms(bench, usable)]


async def _kept(
    bench: Bench,
    usable: Sequence[Golden],
    goldens: Goldens,
    name: str,
    holds: dict[str, set[int]],
) -> Finding:
    """Return how often the edit loses the score. `holds`: edit -> rows on which it does not."""
    kept = KEPT[name]
    chosen: list[int] = []
    texts: list[str] = []
    for position, golden in enumerate(usable):
        text = kept.edit(golden, goldens)
        if text is None or text == golden.right_text:
            continue
        if kept.control and position not in holds[kept.control]:
            continue
        chosen.append(position)
        texts.append(text)
    cases = [usable[n].row.case(text) for n, text in zip(chosen, texts, strict=True)]
    scores = await bench.subject.score(cases)
    trials: list[Trial] = []
    holds[name] = set()
    for position, case, score in zip(chosen, cases, scores, strict=True):
        golden = usable[position]
        lost = not score.value > golden.wrong.value
        if not lost:
            holds[name].add(position)
        note = f"unedited {golden.right.value:g}, a wrong one {golden.wrong.value:g}"
        trials.append(Trial(lost, case.example(score, note)))
    finding = bench.limits.rate(
        f"mutations.{name}", f"{name}, which must not matter", trials, fault="lose their score"
    )
    if kept.note and finding.verdict != "not measurable":
        return noted(
            finding.name, f"{name}, on which people differ", finding.found, rows=finding.rows
        )
    return finding


async def _forms(bench: Bench, usable: Sequence[Golden]) -> Finding:
    """Return which other forms of the answer are read, on a few rows."""
    read: list[str] = []
    few = usable[:4]
    for form, template in FORMS.items():
        cases = [golden.row.case(template.replace("{}", golden.row.answer)) for golden in few]
        scores: list[Score] = await bench.subject.score(cases)
        better = [s.value > g.wrong.value for s, g in zip(scores, few, strict=True)]
        if few and all(better):
            read.append(form)
    return noted("mutations.forms", "forms of the answer", f"reads {', '.join(read) or 'none'}")
