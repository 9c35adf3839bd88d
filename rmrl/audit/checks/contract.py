"""Does the reward answer every response with a number or no verdict, and leave nothing behind?"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import chain, repeat
from typing import Any, ClassVar

from rmrl.audit.audit_rows import Row
from rmrl.audit.checks.bench import Bench, Probe
from rmrl.audit.finding import Example, Finding, Limits, Trial, noted, unmeasured
from rmrl.audit.laboratory import Answer, Condition, Laboratory
from rmrl.audit.subject import Case, Score

ODD_RESPONSES = {
    "empty": "",
    "white space": " \n\t ",
    "very long": "word " * 20_000,
    "one long word": "x" * 50_000,
    "many digits": "9" * 5_000,
    "deep brackets": "(" * 3_000,
    "open box": "\\boxed{",
    "open tag": "<answer>",
    "half a character": "caf\ud83d",
    "zero bytes": "a\x00b",
    "other scripts": "答案是四十二。 \u202e\u0645\u0631\u062d \U0001f600",
    "not a number": "The answer is nan.",
    "infinite": "The answer is inf, 1e999.",
    "division": "The answer is 1/0.",
    "a row of JSON": '{"answer": null}',
}
"""Name -> text that a policy may well write."""
_FAULTY = ("user_error", "timeout", "worker_lost", "provider_error")
_MOST_ROWS = 12
_ODD_ROWS = 2
_SHARE = 0.2
"""Part of the budget for calls of a rule in the laboratory."""
_EMPTY = Example(prompt="", response="")


class Contract:
    """Odd responses through the reward; for rules also what else they do."""

    name: ClassVar[str] = "contract"
    needs: ClassVar[str] = "any rows"
    responses_per_row: ClassVar[int] = 1
    probe: ClassVar[Probe] = Probe(
        code="def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    return float(solution_str.split()[-1] == ground_truth)\n"
    )

    async def run(self, bench: Bench) -> list[Finding]:
        """Try it. A rule is called in the laboratory, anything else as training does."""
        rows = [row for row in bench.rows if row.responses]
        usual = [row.case(row.responses[0]) for row in rows[:_MOST_ROWS]]
        odd = odd_cases(rows[:_ODD_ROWS])
        findings: list[Finding] = []
        if bench.laboratory is None:
            scores = await bench.subject.score(odd)
        else:
            answers = await asyncio.to_thread(
                _called, bench.laboratory, [*odd, *usual], bench.seconds(_SHARE)
            )
            findings = [*deeds(answers, limits=bench.limits), await _none(bench, usual[:1])]
            scores = [Score(value=0.0, status=a.status, detail=a.detail) for a in answers]
        names = list(ODD_RESPONSES) * _ODD_ROWS
        trials = list(map(_trial, names, odd, scores))
        usual_scores = await bench.subject.score(usual)
        usual_trials = list(map(_trial, repeat("a response of the file"), usual, usual_scores))
        return [
            bench.limits.never(
                "contract.rows", "responses of the file", usual_trials, fault="without an answer"
            ),
            bench.limits.never(
                "contract.odd", ", ".join(ODD_RESPONSES), trials, fault="raise or hang"
            ),
            *findings,
        ]


def odd_cases(rows: Sequence[Row]) -> list[Case]:
    """Return the odd responses to each row."""
    return [row.case(text) for row in rows for text in ODD_RESPONSES.values()]


def _trial(name: str, case: Case, score: Score) -> Trial:
    faulty = score.status in _FAULTY
    return Trial(faulty, case.example(score, f"{name}: {score.status}, {score.detail}"))


def _called(laboratory: Laboratory, cases: Sequence[Case], seconds: float) -> list[Answer]:
    order = tuple(range(len(cases)))
    condition = Condition(name="contract", order=order)
    answers = laboratory.answers(cases, [condition], timeout_s=max(seconds, 1.0))
    return answers.get("contract", [])


def deeds(answers: Sequence[Answer], *, limits: Limits) -> list[Finding]:
    """Return findings on what a rule did beside answering."""
    facts = [answer.facts for answer in answers if answer.facts]
    if not facts:
        return [unmeasured("contract.left", "processes and files left behind", "no call ended")]
    alive = sum(bool(fact["left"]) for fact in facts)
    files = _listed(facts, "files")
    hosts = _listed(facts, "hosts")
    printing = sum(bool(fact["printed"]) for fact in facts)
    started = sum(fact["processes"] for fact in facts)
    seconds = sorted(fact["seconds"] for fact in facts)
    middle = seconds[len(seconds) // 2]
    many = len(files) > max(2, len(facts) // 4)  # a cache in one file is none of them
    trials = [Trial(bool(fact["left"]) or (many and bool(fact["files"])), _EMPTY) for fact in facts]
    what = f"leave processes running ({alive}) or files ({', '.join(files[:2]) or 'none'})"
    return [
        limits.never("contract.left", "processes and files left behind", trials, fault=what),
        noted(
            "contract.beside",
            "output, files, network, processes, time",
            f"{printing} of {len(facts)} calls print; files: {', '.join(files[:3]) or 'none'};"
            f" hosts: {', '.join(hosts[:3]) or 'none'}; {started} processes started;"
            f" {1000 * middle:.2g} ms a call, at most {1000 * seconds[-1]:.2g} ms",
            rows=len(facts),
        ),
    ]


async def _none(bench: Bench, cases: Sequence[Case]) -> Finding:
    """Return what a rule does with None where a response is due. rmrl never sends it, but other
    trainers do if a response was lost."""
    name, tried = "contract.none", "None in the place of a response"
    assert bench.laboratory is not None
    condition = Condition(name=name, order=(0,) * len(cases), no_text=True)
    answers = await asyncio.to_thread(
        bench.laboratory.answers, cases, [condition], timeout_s=bench.seconds(_SHARE)
    )
    listed = answers.get(name, [])
    if not listed:
        return unmeasured(name, tried, "no call ended")
    (answer,) = listed
    said = answer.detail
    if answer.value is not None:
        said = f"it gets the score {answer.value:g}"
    return noted(name, tried, said, rows=1)


def _listed(facts: Sequence[Mapping[str, Any]], what: str) -> list[str]:
    return sorted(set(chain.from_iterable(fact[what] for fact in facts)))
