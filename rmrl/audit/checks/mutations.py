"""Edits to right responses that must not matter, and edits that must.

An edit that must not matter is faulty where the edited response scores no higher than the wrong
one. One that must is faulty where it scores at least as high as the right one. An edit counts only
where the reward accepts its control: a reward that reads nothing but a bare answer is not blamed
for a reasoning's numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from rmrl.audit.checks.bench import Bench, Probe
from rmrl.audit.checks.golden import accepted
from rmrl.audit.finding import Finding, Trial, noted, unmeasured
from rmrl.audit.goldens import FORMS, Golden
from rmrl.audit.subject import Case, Score
from rmrl.types import Prompt

Edit = Callable[[Golden], str | None]
_OPTION = re.compile(r"^\(?(?P<letter>[A-J])[.):] +(?P<text>.+)$", re.MULTILINE)
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_REASONING = "I read the question, and write down what is known. Then I work it out step by step. "
_LONG = _REASONING * 80
_WITH_NUMBERS = "Step 1: there are 3 facts and 17 words. Step 2: I check 5 cases. "
LEAD_INS = (
    "Putting this together, we get:\n",
    "So, all in all, here is my result.\n",
    "After some thought I arrive at the following.\n",
    "Hence, and this is my last word:\n",
)
"""What people write before an answer, in several wordings."""
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
    """Return an edit for answers that are numbers."""

    def apply(golden: Golden) -> str | None:
        if not _NUMBER.fullmatch(golden.row.answer):
            return None
        return golden.text(edit(golden.row.answer))

    return apply


def _around(before: str = "", after: str = "") -> Edit:
    return lambda golden: f"{before}{golden.right_text}{after}"


def latex(golden: Golden) -> str | None:
    """The answer as LaTeX."""
    template = "${}$"
    if golden.row.answer.isalpha():
        template = "\\text{{}}"
    return wrapped(golden, template)


def wrapped(golden: Golden, template: str) -> str | None:
    """The answer in a template, in the form."""
    return golden.text(template.replace("{}", golden.row.answer))


def next_digit(match: re.Match[str]) -> str:
    """Another digit than the matched one, and not 0."""
    return str(int(match[0]) % 9 + 1)


def lead_in(golden: Golden) -> str:
    """The right response with other words before it, a lead-in for each row in turn."""
    chosen = len(golden.row.reference) + len(str(golden.row.prompt.messages[-1]["content"]))
    return LEAD_INS[chosen % len(LEAD_INS)] + golden.right_text


def negated(golden: Golden) -> str | None:
    """The answer, if it is words, with a "not"."""
    if not golden.row.answer.replace(" ", "").isalpha():
        return None
    return golden.text(f"not {golden.row.answer}")


def wrong_end(golden: Golden) -> str | None:
    """A reasoning that names the right answer, and a wrong one at the end."""
    if not golden.other:
        return None
    reasoning = f"The result is {golden.row.answer} by the steps so far, and I go on.\n"
    return reasoning + golden.text(golden.other)


KEPT: dict[str, Kept] = {
    "white space": Kept(_around("\n\n ", " \n\n")),
    "windows line ends": Kept(_around("", "\r\n")),
    "reasoning before": Kept(_around(_REASONING), note=True),
    "reasoning with numbers before": Kept(_around(_WITH_NUMBERS), "reasoning before"),
    "long reasoning before": Kept(_around(_LONG), "reasoning before"),
    "other words before": Kept(lead_in, "reasoning before"),
    "remark behind": Kept(_around("", _REMARK), note=True),
    "remark with numbers behind": Kept(_around("", _REMARK_WITH_NUMBERS), "remark behind"),
    "decimals": Kept(number_edit(lambda answer: f"{float(answer):.1f}"), note=True),
    "unit": Kept(number_edit("{} apples".format), note=True),
    "currency": Kept(number_edit("${}".format), note=True),
    "thousands": Kept(number_edit(lambda answer: f"{float(answer):,g}"), note=True),
    "capitals": Kept(lambda golden: golden.right_text.upper(), note=True),
    "LaTeX": Kept(latex, note=True),
    "bold": Kept(lambda golden: wrapped(golden, "**{}**"), note=True),
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
    """Two edits, one after the other."""

    name: ClassVar[str] = "mutations"
    needs: ClassVar[str] = "references"
    responses_per_row: ClassVar[int] = len(KEPT) + len(CHANGED) + 5
    probe: ClassVar[Probe] = Probe(
        code="import re\n"
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    found = re.search(r'\\d+', solution_str)\n"
        "    return float(bool(found) and found[0] == ground_truth)\n"
    )

    async def run(self, bench: Bench) -> list[Finding]:
        """Try it."""
        goldens = await bench.goldens()
        if not goldens.forms:
            why = "rows have no references in a form that this reward reads"
            return [unmeasured("mutations.digits", "edits of references", why)]
        usable = goldens.usable
        findings: list[Finding] = []
        holds: dict[str, set[int]] = {}
        for name in KEPT:
            findings.append(await _kept(bench, usable, name, holds))
        for name, edit in CHANGED.items():
            texts = [edit(golden) for golden in usable]
            findings.append(await accepted(bench, usable, texts, f"mutations.{name}", name))
        return [*findings, await reordered(bench, usable), await _forms(bench, usable)]


async def _kept(
    bench: Bench,
    usable: Sequence[Golden],
    name: str,
    holds: dict[str, set[int]],
) -> Finding:
    """Return how often the edit loses the score. `holds`: edit -> rows on which it does not."""
    kept = KEPT[name]
    chosen: list[int] = []
    texts: list[str] = []
    for position, golden in enumerate(usable):
        text = kept.edit(golden)
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


async def reordered(bench: Bench, usable: Sequence[Golden]) -> Finding:
    """Return how often a question with its options in another order loses the right one's score, or
    gives it to the letter that was right before."""
    name, tried = "mutations.options", "a question's options in another order"
    trials: list[Trial] = []
    for golden in usable:
        prompt = options_turned(golden.row.prompt)
        if prompt is None:
            continue
        now = golden.text(prompt.ground_truth or "")
        cases = [Case(prompt, now), Case(prompt, golden.right_text)]
        right, before = await bench.subject.score(cases)
        note = f"the letter that is right in this order gets {right.value:g}, the one before"
        trials.append(
            Trial(
                not right.value > before.value,
                cases[1].example(before, f"{note} {before.value:g}"),
            )
        )
    return bench.limits.rate(name, tried, trials, fault="lose to the letter before")


def options_turned(prompt: Prompt) -> Prompt | None:
    """Return a question with its options' texts moved on by one letter, and the reference with
    them; None where the reference is no option's letter."""
    text = str(prompt.messages[-1]["content"])
    options = list(_OPTION.finditer(text))
    letters = [option["letter"] for option in options]
    if len(options) < 2 or prompt.ground_truth not in letters:
        return None
    texts = [option["text"] for option in options]
    turned = text
    for option, other in reversed(list(zip(options, [texts[-1], *texts[:-1]], strict=True))):
        turned = turned[: option.start("text")] + other + turned[option.end("text") :]
    place = (letters.index(prompt.ground_truth) + 1) % len(letters)
    return replace(
        prompt,
        id=f"{prompt.id} turned",
        messages=[*prompt.messages[:-1], {**prompt.messages[-1], "content": turned}],
        ground_truth=letters[place],
    )


async def _forms(bench: Bench, usable: Sequence[Golden]) -> Finding:
    """Return which other answer forms are read, on a few rows."""
    read: list[str] = []
    few = usable[:4]
    for form, template in FORMS.items():
        cases = [golden.row.case(template.replace("{}", golden.row.answer)) for golden in few]
        scores: list[Score] = await bench.subject.score(cases)
        better = [s.value > g.wrong.value for s, g in zip(scores, few, strict=True)]
        if few and all(better):
            read.append(form)
    return noted("mutations.forms", "forms of the answer", f"reads {', '.join(read) or 'none'}")
