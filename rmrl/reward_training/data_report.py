"""What the training data holds, before the first step: counts, doubtful rows, and how far the label
follows from the length or the words alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from rmrl.evaluation.eval_tables import Rows, percent
from rmrl.evaluation.measures.shares import share
from rmrl.reward_training.example import Example, pairs_of
from rmrl.reward_training.held_out import CONFIDENCE
from rmrl.reward_training.read_examples import Split
from rmrl.reward_training.text_baseline import cross_fitted
from rmrl.reward_training.tokens import Tokenized

Numbers = dict[str, Any]

_DOUBTFUL = 0.1
"""P(label) by a baseline that has not seen the prompt, below which a label is suspected."""
_LISTED = 20
_MOST_SOURCES = 20


def data_report(split: Split, train: Tokenized, held_out: Tokenized, *, max_length: int) -> Numbers:
    """Return the report's numbers."""
    return {
        "rows": split.rows,
        "excluded": split.excluded,
        "overlapping": split.overlapping,
        "without_critique": split.without_critique,
        "max_length": max_length,
        "train": _fit(split.train, train),
        "held_out": _fit(split.held_out, held_out),
        "sources": dict(Counter(each.source for each in split.train).most_common(_MOST_SOURCES)),
        **_doubts(split.train),
        **_shortcuts(split.train),
    }


def _fit(examples: Sequence[Example], result: Tokenized) -> Numbers:
    lengths = np.asarray(result.lengths or [0])
    return {
        "rows": len(examples),
        "used": len(result.items),
        "dropped": [examples[number].place for number in result.dropped],
        "cut": [examples[number].place for number in result.cut],
        "unlabelled": [examples[number].place for number in result.unlabelled],
        "tokens": int(lengths.sum()),
        "tokens_median": float(np.median(lengths)),
        "tokens_longest": int(lengths.max()),
    }


def _doubts(examples: Sequence[Example]) -> Numbers:
    """Rows that stand there twice, and rows that another one contradicts."""
    orders: dict[Any, dict[Any, str]] = {}
    repeated: list[str] = []
    contradicting: list[tuple[str, str]] = []
    for example in examples:
        responses = frozenset(example.responses)
        about = (example.key, responses, example.question)
        earlier = orders.setdefault(about, {})
        if example.labels in earlier:
            repeated.append(example.place)
        elif earlier:
            contradicting.append((next(iter(earlier.values())), example.place))
        earlier.setdefault(example.labels, example.place)
    return {"repeated": repeated, "contradicting": contradicting}


def _shortcuts(examples: Sequence[Example]) -> Numbers:
    """How well length and words alone tell the better response, on training pairs."""
    pairs = pairs_of(examples)
    if not pairs:
        return {}
    longer: list[float] = []
    for pair in pairs:
        better, worse = map(len, pair.responses)
        longer.append(0.5 if better == worse else float(better > worse))
    numbers: Numbers = {"better_is_longer": share(longer, confidence=CONFIDENCE, seed=1)}
    probabilities_N = cross_fitted(pairs)
    if probabilities_N is None:
        return numbers
    right = (probabilities_N > 0.5).astype(float).tolist()
    doubtful = np.flatnonzero(probabilities_N < _DOUBTFUL)
    first = doubtful[np.argsort(probabilities_N[doubtful])][:_LISTED].tolist()
    return {
        **numbers,
        "words": share(right, confidence=CONFIDENCE, seed=1),
        "suspected": len(doubtful),
        "most_suspected": [pairs[number].place for number in first],
    }


def data_tables(numbers: Numbers) -> list[Rows]:
    """Return the report as tables for people."""
    limit = f"beyond {numbers['max_length']} tokens"
    rows = [["data", "training", "held out"]]
    for title, name in (("rows", "rows"), ("used", "used")):
        rows.append([title, *(str(numbers[part][name]) for part in ("train", "held_out"))])
    left_out = [(f"dropped, {limit}", "dropped"), (f"cut, {limit}", "cut")]
    left_out.append(("no label to learn from", "unlabelled"))
    for title, name in left_out:
        rows.append([title, *(str(len(numbers[part][name])) for part in ("train", "held_out"))])
    for title, name in (("tokens", "tokens"), ("longest", "tokens_longest")):
        rows.append([title, *(str(numbers[part][name]) for part in ("train", "held_out"))])
    facts = [["training rows", "count"]]
    facts.append(["prompt stands in data.exclude_files", str(numbers["excluded"])])
    facts.append(["prompt is held out", str(numbers["overlapping"])])
    if numbers["without_critique"]:
        facts.append(["a response has no critique", str(numbers["without_critique"])])
    facts.append(["repeated", str(len(numbers["repeated"]))])
    facts.append(["contradict another row", str(len(numbers["contradicting"]))])
    if "suspected" in numbers:
        facts.append(["label suspected by the words", str(numbers["suspected"])])
    tables: list[Rows] = [rows, facts]
    if len(numbers["sources"]) > 1:
        tables.append([["source", "rows"], *([n, str(c)] for n, c in numbers["sources"].items())])
    if "better_is_longer" in numbers:
        alone = [["the label from ... alone", "right", "interval"]]
        for title, name in (("length", "better_is_longer"), ("words, unseen prompts", "words")):
            if name in numbers:
                figure = numbers[name]
                interval = f"{percent(figure['low'])} .. {percent(figure['high'])}"
                alone.append([title, percent(figure["value"]), interval])
        tables.append(alone)
    return tables
