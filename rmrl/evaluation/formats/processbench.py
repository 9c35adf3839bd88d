"""ProcessBench (Zheng et al. 2024, arXiv:2412.06559): data set Qwen/ProcessBench, code
QwenLM/ProcessBench.

A row holds id, generator, problem, steps, final_answer_correct and label: the first wrong step from
0, or -1. A subset's score is the harmonic mean of two accuracies: on rows with a wrong step, which
must be named exactly, and on rows without (code/run_eval_prm_trl.py). The score is the mean over
the subsets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rmrl.evaluation.formats.fields import Fields
from rmrl.evaluation.formats.form import Figures, Format, Judged, mean
from rmrl.evaluation.items import Item
from rmrl.evaluation.judgements import TieRule

SEPARATOR = "\n\n"
"""Text between a response's steps, at which kind `process` cuts."""


class ProcessBench(Format):
    """Counting: exact matches. No verdict is none."""

    source: ClassVar[str] = "https://github.com/QwenLM/ProcessBench"
    paths: ClassVar[Mapping[str, str]] = {"prompt": "problem"}
    ties: ClassVar[TieRule] = "wrong"
    recorded: ClassVar[Mapping[str, Any]] = {"first_wrong": "prediction"}

    def item(self, row: Fields) -> Item:
        """Return the solution. Its subset is the start of its id ("gsm8k-0")."""
        steps = row.texts("steps")
        label = row.need("label")
        if not isinstance(label, int) or not -1 <= label < len(steps):
            raise row.wrong("label", label, f"a step from 0 to {len(steps) - 1}, or -1")
        number = row.key()
        return Item(
            id=number,
            subset=str(row.get("subset", number.partition("-")[0])),
            prompt=row.prompt(),
            responses=(SEPARATOR.join(steps),),
            steps=steps,
            first_wrong=label,
        )

    def figures(self, items: Sequence[Item], judged: Judged) -> Figures:
        """Return each subset's two accuracies and F1, and the mean F1 as "score"."""
        matches: dict[str, tuple[list[float], list[float]]] = {}
        for item, judgement in zip(items, judged.judgements, strict=True):
            match = judgement.first_wrong is not None and judgement.first_wrong == item.first_wrong
            of_wrong, of_right = matches.setdefault(item.subset, ([], []))
            if item.first_wrong == -1:
                of_right.append(float(match))
            else:
                of_wrong.append(float(match))
        figures: Figures = {}
        scores: list[float] = []
        for subset, (of_wrong, of_right) in matches.items():
            wrong = mean(of_wrong)
            right = mean(of_right)
            f1 = 0.0
            if wrong + right:
                f1 = 2 * wrong * right / (wrong + right)
            figures |= {f"{subset}/error": wrong, f"{subset}/correct": right, f"{subset}/f1": f1}
            scores.append(f1)
        return {**figures, "score": mean(scores)}
