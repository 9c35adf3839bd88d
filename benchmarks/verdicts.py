"""How well verdicts are read from recorded transcripts of judges.

    python -m benchmarks.verdicts --data ../shared/data/judge

Each text is compared with a statement that is found without the reader: the only "Output (x) is
better" in it that is neither negated nor conditional, the whole text where it is nothing but
"Output (x)", or the recorded result that the judge's answer began with. Transcripts by hand in the
styles of other judges stand in tests/rewards/judging/transcripts.jsonl.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmrl.rewards.judging.reader import read_choice, read_number
from rmrl.rewards.judging.reading import Reading

PAIR = ("A", "B", "tie")
BY_HAND = Path("tests/rewards/judging/transcripts.jsonl")
STATEMENT = re.compile(r"Output \(([ab])\) is (?:the )?better")
DOUBTFUL = re.compile(
    r"(?:neither|nor|either|or|and|not|n't|if|whether|while|although|claim)\b[^.\n]{0,40}$"
)


@dataclass(frozen=True)
class Transcript:
    """One text of a judge, with the statement in it and what upstream read, where there are any."""

    judge: str
    text: str
    reading: Reading[Any]
    statement: str | float | None
    upstream: str | None = None
    has_upstream: bool = False


def stated(text: str) -> str | None:
    """The verdict that the text states without doubt: A or B; None where it states both or none."""
    bare = re.fullmatch(r"\W*Output \(([ab])\)\W*", text)
    if bare:
        return bare[1].upper()
    statements = list(STATEMENT.finditer(text))
    if any(DOUBTFUL.search(text[max(0, m.start() - 60) : m.start()]) for m in statements):
        return None
    if any(re.match(r"[^.\n]{0,30}\b(?:if|unless)\b", text[m.end() :]) for m in statements):
        return None
    letters = {match[1].upper() for match in statements}
    return letters.pop() if len(letters) == 1 else None


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The objects of a jsonl file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def llmbar(path: Path) -> Iterator[Transcript]:
    """Both orders of each comparison; upstream's winners are in the original order, the texts in
    the order shown."""
    for row in rows_of(path):
        if row["mode"] == "Rating":  # two numbers, no text
            continue
        for key, recorded in (("completion", "winner"), ("completion_swapped", "winner_swapped")):
            swapped = key == "completion_swapped"
            names = {"1": "B", "2": "A"} if swapped else {"1": "A", "2": "B"}
            text = row[key]
            yield Transcript(
                f"{row['evaluator']} {row['mode']}", text, read_choice(text, PAIR), stated(text),
                names.get(row[recorded]), True,
            )  # fmt: skip


def pandalm(path: Path) -> Iterator[Transcript]:
    """The verdict on the first line, the reason below it, as these judges write."""
    for row in rows_of(path):
        if row["result"] == "garbage":
            continue
        text = f"{row['result']}\n\n### Reason: {row['reason']}"
        reading = read_choice(text, ("1", "2", "Tie"))
        result = "Tie" if row["result"] == "0" else row["result"]
        yield Transcript(f"PandaLM {row['judge']}", text, reading, result)


def absolute(path: Path) -> Iterator[Transcript]:
    """GPT-4's feedback with its score in the form of Prometheus."""
    for row in rows_of(path):
        for feedback, score in zip(row["gpt4_feedback"], row["gpt4_score"], strict=True):
            text = f"Feedback: {feedback} [RESULT] {score}"
            yield Transcript("GPT-4 feedback, 1 to 5", text, read_number(text, 1, 5), float(score))


def by_hand(path: Path) -> Iterator[Transcript]:
    """Each with the right reading; None where there is none."""
    for row in rows_of(path):
        options = {key: row[key] for key in ("cut", "no_preference") if key in row}
        if "choices" in row:
            reading: Reading[Any] = read_choice(row["text"], row["choices"], **options)
        else:
            reading = read_number(row["text"], *row["scale"], **options)
        yield Transcript("by hand, other judges' styles", row["text"], reading, row["verdict"])


def table(transcripts: list[Transcript]) -> list[dict[str, Any]]:
    """One row per judge."""
    judges: defaultdict[str, list[Transcript]] = defaultdict(list)
    for transcript in transcripts:
        judges[transcript.judge].append(transcript)
    return [counts(judge, rows) for judge, rows in judges.items()]


def counts(judge: str, rows: list[Transcript]) -> dict[str, Any]:
    """What was read of one judge's texts, and how that compares with their statements and with
    upstream."""
    known = [row for row in rows if row.statement is not None]
    wrong = [row for row in known if row.reading.verdict not in (None, row.statement)]
    upstream = [row for row in rows if row.has_upstream]
    differs = [row for row in upstream if row.reading.verdict not in (None, row.upstream)]
    return {
        "judge": judge,
        "texts": len(rows),
        "read": sum(row.reading.verdict is not None for row in rows),
        "no_verdict": dict(
            Counter(str(row.reading.reason) for row in rows if row.reading.verdict is None)
        ),
        "forms": dict(
            Counter(str(row.reading.form) for row in rows if row.reading.verdict is not None)
        ),
        "with_statement": len(known),
        "statement_unread": sum(row.reading.verdict is None for row in known),
        "wrong": len(wrong),
        "wrong_share": len(wrong) / len(known) if known else 0.0,
        "upstream_differs": dict(Counter(cause(row) for row in differs)),
        "upstream_wrong_by_statement": sum(
            row.statement is not None and row.upstream != row.statement for row in upstream
        ),
        "wrong_texts": [{"text": row.text[-300:], "read": row.reading.verdict} for row in wrong],
    }


def cause(row: Transcript) -> str:
    """Why upstream's verdict and the reader's differ, by what stands in the text."""
    if row.reading.verdict == "tie":
        return f"the text prefers neither, upstream has {row.upstream}"
    if row.statement == row.reading.verdict:
        opens = STATEMENT.match(row.text.strip()) is not None
        place = "in its first sentence" if opens else "in its last sentence"
        place += ", with line breaks" if "\n" in row.text.strip() else ", on one line"
        return (
            f"the text says only that {row.statement} is better ({place}), upstream has"
            f" {row.upstream}"
        )
    return (
        f"the text says both; it concludes with {row.reading.verdict}, upstream has {row.upstream}"
    )


def main() -> None:
    """Read everything, write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", default="../shared/data/judge")
    parser.add_argument("--out", default="benchmarks/results/verdicts.json")
    args = parser.parse_args()
    data = Path(args.data)
    transcripts = [
        *llmbar(data / "llmbar_judge_outputs.jsonl"),
        *pandalm(data / "pandalm_judges.jsonl"),
        *absolute(data / "absolute_gpt4_scores.jsonl"),
        *by_hand(BY_HAND),
    ]
    rows = table(transcripts)
    Path(args.out).write_text(
        json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    print("| judge | texts | read | with a statement | of these unread | wrong |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row['judge']} | {row['texts']} | {row['read']} | {row['with_statement']} "
            f"| {row['statement_unread']} | {row['wrong']} ({row['wrong_share']:.2%}) |"
        )
        for name, count in row["upstream_differs"].items():
            print(f"  {count} x {name}")


if __name__ == "__main__":
    main()
