"""A whole file's missing verdicts: counts per component and cause, remedies, and budget checks."""

from __future__ import annotations

from collections.abc import Container, Mapping

from rmrl.config.schema import RewardConfig
from rmrl.rewards.session.missing import CAUSES, UNASKED, VerdictCounts, is_missing, overruns

OF_FUNCTION = "no number"
"""Mark of an unparseable verdict that no model wrote."""
_MOST_CHARACTERS = 160

REMEDIES: Mapping[str, str] = {
    "timeout": "raise its timeout_s, or find the cause of the wait",
    "provider_error": (
        "check the server or engine; the cache (reward.cache.path) keeps the answers received"
    ),
    "worker_lost": (
        "score this response alone to see what kills the process (memory, a crash in a library)"
    ),
    "cancelled": "score again",
    "unparseable": (
        "read its output (columns=[raw]); constrain the output (sampling.choice, json_schema) or"
        " correct rm_postprocess"
    ),
    f"unparseable, {OF_FUNCTION}": (
        "let the function return a number for these responses, or type"
        " reward.specs.<name>.none=skipped where it is not meant for them"
    ),
    f"unparseable, {UNASKED}": (
        "give the policy more tokens, see that the marks fit it (reward.specs.<name>.thinking), or"
        " give such responses a score (reward.specs.<name>.unclosed)"
    ),
    "judge_truncated": "raise sampling.max_tokens",
    "judge_refused": "read its output (columns=[raw]) and reword the rubric",
    "overlong": "raise engine.max_model_len, or shorten the input in rm_preprocess",
    "user_error": "correct the function, or the row's reference answer",
}
"""Status, or "<status>, <UNASKED or OF_FUNCTION>" -> remedy."""


def missing_table(verdicts: Mapping[str, VerdictCounts], *, functions: Container[str] = ()) -> str:
    """Format one line per component and status, the most frequent first, with a detail as example;
    "" where nothing is missing. `functions`: components whose score is a function's number, not a
    model's text."""
    rows = [("reward", "status", "cause", "missing", "share")]
    examples = ["for example"]
    for name, counts in verdicts.items():
        for status, count in counts.statuses.most_common():
            if not is_missing(status):
                continue
            cause = next((kind for kind, members in CAUSES.items() if status in members), "")
            unasked = counts.unasked[status]
            parts = ((status, cause, count - unasked), (f"{status}, {UNASKED}", "", unasked))
            for shown, cause_of_part, some in parts:
                if not some:
                    continue
                total = counts.asked
                rows.append(
                    (name, shown, cause_of_part, f"{some} of {total}", f"{some / total:.1%}")
                )
                detail = " ".join(counts.examples.get(shown, "").split())
                if len(detail) > _MOST_CHARACTERS:
                    detail = f"{detail[:_MOST_CHARACTERS]} ..."
                examples.append(detail)
    if len(rows) == 1:
        return ""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["missing verdicts"]
    for row, example in zip(rows, examples, strict=True):
        cells = map(str.ljust, row, widths)
        lines.append("  " + "  ".join([*cells, example]).rstrip())
    statuses: set[str] = set()
    for name, status, *_ in rows[1:]:
        if status == "unparseable" and name in functions:
            status = f"unparseable, {OF_FUNCTION}"
        statuses.add(status)
    remedies = [f"  {each}: {REMEDIES[each]}" for each in REMEDIES if each in statuses]
    if remedies:
        lines += ["what to do", *remedies]
    return "\n".join(lines)


def broken_budgets(verdicts: Mapping[str, VerdictCounts], settings: RewardConfig) -> list[str]:
    """Return one sentence per budget in `reward.max_missing` and `max_missing_by_cause` that all
    rows together exceed."""
    lines = []
    for name, counts in verdicts.items():
        for overrun in overruns(
            counts, allowed=settings.max_missing, by_cause=settings.max_missing_by_cause
        ):
            lines.append(f"reward '{name}' {overrun}")
    return lines
