"""Seconds, tokens and requests for 1,000 responses and for a training step, and memory."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import psutil

from rmrl.audit.audit_rows import Row
from rmrl.audit.checks.bench import Bench, Probe
from rmrl.audit.finding import Finding, Verdict, noted, unmeasured
from rmrl.audit.subject import Case, Score

_LEAST = 32
_MOST = 256
"""Responses in the first batch and in a later one."""
_SHARE = 0.05
"""Part of the budget for a training step, or as much of one as it has room for."""
_SHORT, _LONG = 500, 4000
_REPEATS = 3
_MOST_GROWTH = 24.0
"""Accepted growth of the seconds where a response is eight times as long: three times what is in
proportion."""
_LEAST_S = 0.02
"""Seconds for a long response below which growth does not matter."""


class Cost:
    """Seconds for a response, and how they grow with its length."""

    name: ClassVar[str] = "cost"
    needs: ClassVar[str] = "any rows"
    responses_per_row: ClassVar[int] = 4
    probe: ClassVar[Probe] = Probe(
        code="def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    total = 0\n"
        "    for step in range(20_000):\n"
        "        total += step\n"
        "    return float(solution_str.endswith(ground_truth))\n",
        settings={"most_s_per_1000": 0.001},
    )

    async def run(self, bench: Bench) -> list[Finding]:
        """Try it."""
        subject = bench.subject
        if not any(row.responses for row in bench.rows):
            return [unmeasured("cost.seconds", "responses of the file", "there are none")]
        begun = subject.seconds
        ends = begun + bench.seconds(_SHARE)
        scores: list[Score] = []
        memory = [family_gib()]
        cases = step_cases(bench.rows)
        count = min(_LEAST, bench.settings.step_responses)
        while len(scores) < bench.settings.step_responses and (
            subject.seconds < ends or not scores
        ):
            chosen = list(itertools.islice(cases, count))
            scores += await subject.score_afresh(chosen, batch=count)
            memory.append(family_gib())
            count = min(_MOST, bench.settings.step_responses - len(scores))
            if bench.settings.max_responses is not None:
                break  # each costs money
        seconds = subject.seconds - begun
        per_1000 = 1000 * seconds / len(scores)
        limit = bench.settings.most_s_per_1000
        step = per_1000 * bench.settings.step_responses / 1000
        own = sorted(score.seconds for score in scores)
        tokens = 1000 * sum(score.tokens for score in scores) / len(scores)
        requests = 1000 * sum(score.requests for score in scores) / len(scores)
        verdict: Verdict = "fail" if per_1000 > limit else "pass"
        pace = Finding(
            name="cost.seconds",
            tried=(
                f"groups of the file for {seconds:.2g} s, in batches of at most {_MOST},"
                f" audit.most_s_per_1000={limit:g}"
            ),
            rows=len(scores),
            found=(
                f"{per_1000:.3g} s for 1,000 responses, {step:.3g} s for a step of"
                f" {bench.settings.step_responses:,} (audit.step_responses)"
            ),
            value=per_1000,
            power=f"{limit:g} s",
            verdict=verdict,
        )
        middle, last = (float(np.quantile(own, q)) for q in (0.5, 0.99))
        rest = (
            f"{tokens:,.0f} tokens and {requests:,.0f} requests for 1,000 responses; a response"
            f" takes {1000 * middle:.2g} ms, 1 in 100 takes {1000 * last:.2g}; at most"
            f" {max(memory):.2f} GiB with all processes, {1024 * (max(memory) - memory[0]):.0f} MiB"
            " more than before"
        )
        return [pace, await _growth(bench), noted("cost.rest", "tokens, tail, memory", rest)]


def step_cases(rows: Sequence[Row]) -> Iterator[Case]:
    """Yield the rows' responses, group by group, without end. No two are equal, for equal ones are
    asked about once."""
    for turn in itertools.count():
        for row in rows:
            for text in row.responses:
                yield row.case(f"{text}{' ' * turn}")


def family_gib() -> float:
    """Return the memory that this process and those below it have."""
    process = psutil.Process()
    total = 0
    for each in (process, *process.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            total += each.memory_info().rss
    return total / 2**30


async def _growth(bench: Bench) -> Finding:
    """Judge how the seconds grow with the length."""
    name, tried = "cost.growth", f"responses of {_SHORT:,} and of {_LONG:,} words"
    row = bench.rows[0]
    quickest: list[float] = []
    for words in (_SHORT, _LONG):
        cases = [row.case(f"word {n} " * (words // 2) + row.answer) for n in range(_REPEATS)]
        scores = await bench.subject.score_afresh(cases)
        quickest.append(min(score.seconds for score in scores))
    short, long = quickest
    growth = long / max(short, 1e-9)
    slow = growth > _MOST_GROWTH and long > _LEAST_S
    return Finding(
        name=name,
        tried=tried,
        rows=2 * _REPEATS,
        found=f"{1000 * short:.2g} and {1000 * long:.2g} ms",
        value=growth,
        power=f"{_MOST_GROWTH:g} times",
        verdict="fail" if slow else "pass",
    )
