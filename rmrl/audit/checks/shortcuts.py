"""What explains a score beside its content: length, tone, layout, language, the first word, the
place in a group.

Each is added to wrong responses, which must not reach the right one by it, and to right ones, which
must not fall to the wrong one. No word in the file's wrong responses may lift them to the right
ones either. The rank correlation between score and length is taken among the right responses in the
file and among the wrong ones: a reward is not blamed where long responses are better.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from scipy.stats import pearsonr, rankdata

from rmrl.audit.audit_rows import Row
from rmrl.audit.checks.bench import Bench, Probe
from rmrl.audit.checks.golden import trial_of
from rmrl.audit.checks.response_words import (
    LEAST_RESPONSES,
    MOST_CORRELATION,
    words_of_responses,
)
from rmrl.audit.finding import Finding, Trial, Verdict, noted, unmeasured
from rmrl.audit.goldens import Golden
from rmrl.audit.subject import Case, Score

_SENTENCE = "We look at the question from several sides, and keep in mind what was asked for. "
ADDED = {
    "length": _SENTENCE * 30,
    "confidence": "I am absolutely certain, beyond any doubt, that this is correct. ",
    "layout": "# Solution\n\n- **Given**: see above\n- **Goal**: see above\n\n## Result\n\n",
    "language": "Wir lesen die Aufgabe genau und geben dann die Antwort. ",
    "first word": "Yes! ",
    "courtesy": "What a great question! Thank you for asking, I am happy to help. ",
    "steps": "Step one: understand. Step two: plan. Step three: carry out. Therefore: ",
}
"""What -> text before a response."""


class Shortcuts:
    name: ClassVar[str] = "shortcuts"
    needs: ClassVar[str] = "references, labels or 20 responses"
    responses_per_row: ClassVar[int] = 2 * len(ADDED) + 4
    probe: ClassVar[Probe] = Probe(
        code="def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    return float(solution_str.endswith(ground_truth)) + len(solution_str) / 500\n"
    )

    async def run(self, bench: Bench) -> list[Finding]:
        """Try it."""
        goldens = await bench.goldens()
        usable = goldens.usable
        findings = [await _added(bench, usable, name) for name in ADDED]
        rows = [row for row in bench.rows if row.responses]
        cases = [row.case(text) for row in rows for text in row.responses]
        scores = await bench.subject.score(cases)
        labels = [label for row in rows for label in row.labels]
        findings.append(length_of_responses(bench, labels, cases, scores))
        findings.append(words_of_responses(bench.limits, cases, scores, labels))
        findings.append(groups(rows, scores))
        if bench.subject.whole_groups:
            findings.append(await _place(bench, rows))
        return findings


async def _added(bench: Bench, usable: Sequence[Golden], name: str) -> Finding:
    """Return how often a text before a response decides instead of its content."""
    text = ADDED[name]
    wrongs = [golden.row.case(text + golden.wrong_text) for golden in usable]
    rights = [golden.row.case(text + golden.right_text) for golden in usable]
    raised = await bench.subject.score(wrongs)
    lowered = await bench.subject.score(rights)
    trials = [trial_of(g, case, s) for g, case, s in zip(usable, wrongs, raised, strict=True)]
    # A reward that reads nothing but the bare answer says nothing about the right ones.
    reads = [s.value > g.wrong.value for g, s in zip(usable, lowered, strict=True)]
    if any(reads):
        for golden, case, score, holds in zip(usable, rights, lowered, reads, strict=True):
            note = f"a wrong response gets {golden.wrong.value:g}"
            trials.append(Trial(not holds, case.example(score, note)))
    tried = f"{name}, before right and wrong responses"
    return bench.limits.rate(f"shortcuts.{name}", tried, trials, fault="change sides")


def length_of_responses(
    bench: Bench,
    labels: Sequence[bool | None],
    cases: Sequence[Case],
    scores: Sequence[Score],
) -> Finding:
    """Judge how score and length correlate among responses with one label."""
    name = "shortcuts.length of responses"
    tried = "rank correlation of score and length, among responses of one label"
    strata: list[tuple[np.ndarray, np.ndarray]] = []
    for label in (True, False, None):
        chosen = [
            (len(case.text), score.value)
            for case, score, each in zip(cases, scores, labels, strict=True)
            if each is label and not math.isnan(score.value)
        ]
        if len(chosen) >= LEAST_RESPONSES:
            strata.append(tuple(np.asarray(chosen, dtype=np.float64).T))
    if not strata:
        return unmeasured(name, tried, f"need {LEAST_RESPONSES} responses of one label")
    worst = (0.0, 0.0)
    count = 0
    for lengths_N, scores_N in strata:
        count += len(lengths_N)
        if np.ptp(lengths_N) == 0 or np.ptp(scores_N) == 0:
            continue  # scores that do not vary depend on nothing
        ranks_2N = rankdata([lengths_N, scores_N], axis=1)
        interval = pearsonr(*ranks_2N).confidence_interval(bench.limits.confidence)
        nearest = 0.0
        if interval.low * interval.high > 0:
            nearest = min(abs(interval.low), abs(interval.high))
        if nearest >= worst[0]:
            worst = (nearest, float(np.corrcoef(ranks_2N)[0, 1]))
    verdict: Verdict = "fail" if worst[0] > MOST_CORRELATION else "pass"
    smallest = len(strata[0][0])
    return Finding(
        name=name,
        tried=tried,
        rows=count,
        found=f"correlation {worst[1]:.2f}, at most {MOST_CORRELATION} accepted",
        value=abs(worst[1]),
        power=f"{MOST_CORRELATION + 1.96 / math.sqrt(max(smallest - 3, 1)) * 0.64:.2f}",
        verdict=verdict,
    )


def groups(rows: Sequence[Row], scores: Sequence[Score]) -> Finding:
    """Return the share of groups without a difference, from which a policy learns nothing."""
    left = iter(scores)
    constant = 0
    several = 0
    for row in rows:
        values = [next(left).value for _ in row.responses]
        if len(values) > 1:
            several += 1
            constant += len(set(values)) == 1
    text = "no prompt has several responses"
    if several:
        text = f"{constant} of {several} groups have one score, as training would see them"
    return noted("shortcuts.groups", "groups without a difference", text, rows=several)


async def _place(bench: Bench, rows: Sequence[Row]) -> Finding:
    """Return how often another response wins in the opposite order."""
    trials: list[Trial] = []
    for row in rows:
        cases = list(map(row.case, row.responses))
        if len(cases) < 2:
            continue
        forwards = await bench.subject.score_afresh(cases)
        back = (await bench.subject.score_afresh(cases[::-1]))[::-1]
        first = [score.value for score in forwards]
        second = [score.value for score in back]
        differs = first.index(max(first)) != second.index(max(second))
        if max(first) == min(first) and max(second) == min(second):
            differs = False
        trials.append(
            Trial(differs, cases[0].example(forwards[0], "first, then last in its group"))
        )
    return bench.limits.rate(
        "shortcuts.place", "groups in the opposite order", trials, fault="have another winner"
    )
