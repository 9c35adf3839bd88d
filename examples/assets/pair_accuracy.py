"""How often a scalar model prefers the response that people prefer: the yardstick against which
rmrl's own evaluation is held.

    python examples/assets/pair_accuracy.py --model .models/ms-marco-minilm \\
        --pairs llmbar.jsonl hhh_alignment.jsonl pandalm_human.jsonl

Plain transformers, padded batches, fp32: nothing of rmrl is imported. Three layouts of pair files
are recognised by their columns: `output_1, output_2, label` (LLMBar), `response_1, response_2,
annotators` (PandaLM; only rows whose annotators agree and saw no tie), and `chosen, rejected`.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NORMAL_95 = 1.959964
TIE_COUNTS = 0.5
"""What a pair counts when both responses score the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two responses to one instruction; people prefer `chosen`."""

    subset: str
    instruction: str
    chosen: str
    rejected: str


def pair_of(row: Mapping[str, Any], source: str) -> Pair | None:
    """The pair in a row of any known layout; None where people do not agree. Raises ValueError for
    an unknown layout."""
    instruction = "\n\n".join(
        text for text in (row.get("instruction", ""), row.get("input", "")) if text
    )
    if "annotators" in row:
        verdicts = set(row["annotators"])
        if len(verdicts) != 1 or not verdicts <= {1, 2}:
            return None
        subset, first, second, label = (
            f"{source}/unanimous",
            row["response_1"],
            row["response_2"],
            verdicts.pop(),
        )
    elif "label" in row:
        subset, first, second, label = (
            f"{source}/{row['subset']}",
            row["output_1"],
            row["output_2"],
            row["label"],
        )
    elif "chosen" in row:
        subset, first, second, label = (
            f"{source}/{row['subset']}",
            row["chosen"],
            row["rejected"],
            1,
        )
    else:
        raise ValueError(
            f"A row of {source} has the columns {sorted(row)}, which is none of the three layouts;"
            " see --help."
        )
    chosen, rejected = (first, second) if label == 1 else (second, first)
    # The answer "True" is a JSON boolean in some published files.
    return Pair(subset=subset, instruction=instruction, chosen=str(chosen), rejected=str(rejected))


def read_pairs(path: Path) -> list[Pair]:
    """All usable pairs of a jsonl file, blank lines skipped."""
    with path.open(encoding="utf-8") as lines:
        pairs = [
            pair_of(json.loads(line), path.stem.split("_")[0]) for line in lines if line.strip()
        ]
    return [pair for pair in pairs if pair is not None]


def wilson(successes: float, total: int) -> tuple[float, float]:
    """95 % score interval of a share, in 0..1; unlike the normal one it stays inside and is right
    for few rows."""
    z2 = NORMAL_95**2
    share = successes / total
    centre = (share + z2 / (2 * total)) / (1 + z2 / total)
    half = (
        NORMAL_95 * math.sqrt(share * (1 - share) / total + z2 / (4 * total**2)) / (1 + z2 / total)
    )
    return centre - half, centre + half


def score(
    model: Any, tokenizer: Any, texts: Sequence[tuple[str, str]], *, batch: int, max_tokens: int
) -> list[float]:
    """The model's logit for each (instruction, response); too long ones lose the end of their
    longer half. Sorted inside to pad little."""
    import torch

    order = sorted(range(len(texts)), key=lambda i: -len(texts[i][0]) - len(texts[i][1]))
    scores = [0.0] * len(texts)
    for start in range(0, len(order), batch):
        rows = order[start : start + batch]
        first, second = zip(*(texts[i] for i in rows), strict=True)
        inputs = tokenizer(
            list(first),
            list(second),
            padding=True,
            truncation=True,
            max_length=max_tokens,
            return_tensors="pt",
        )
        with torch.inference_mode():
            logits = model(**inputs).logits[:, 0]
        for i, value in zip(rows, logits.tolist(), strict=True):
            scores[i] = value
    return scores


def summary(
    pairs: Sequence[Pair], chosen: Sequence[float], rejected: Sequence[float]
) -> dict[str, dict[str, float]]:
    """Per subset: pairs, accuracy (a tie counts a half) and its 95 % interval."""
    wins: dict[str, list[float]] = defaultdict(list)
    for pair, good, bad in zip(pairs, chosen, rejected, strict=True):
        wins[pair.subset].append(TIE_COUNTS if good == bad else float(good > bad))
    return {name: _share(values) for name, values in sorted(wins.items())}


def _share(values: Sequence[float]) -> dict[str, float]:
    low, high = wilson(sum(values), len(values))
    return {
        "pairs": len(values),
        "accuracy": round(sum(values) / len(values), 4),
        "low": round(low, 4),
        "high": round(high, 4),
    }


def report(rows: Mapping[str, Mapping[str, float]]) -> Iterable[str]:
    """The table to print."""
    yield f"{'subset':28s} {'pairs':>5s} {'accuracy':>8s}  95 % interval"
    for name, row in rows.items():
        yield (
            f"{name:28s} {row['pairs']:5d} {row['accuracy']:8.3f}  {row['low']:.3f} .."
            f" {row['high']:.3f}"
        )


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model",
        required=True,
        help="folder or hub id of a sequence classification model with one label",
    )
    parser.add_argument("--pairs", type=Path, nargs="+", required=True, help="jsonl files of pairs")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("benchmarks/results/scalar_model_pairs.json"),
        help="where the numbers go",
    )
    parser.add_argument(
        "--batch", type=int, default=32, help="responses per forward pass (default: 32)"
    )
    parser.add_argument(
        "--max-tokens",
        type=int,
        default=512,
        help="instruction + response, cut beyond (default: 512)",
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Score, print, write."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    options = parse(argv)
    pairs = [pair for path in options.pairs for pair in read_pairs(path)]
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model = AutoModelForSequenceClassification.from_pretrained(options.model).eval()
    started = time.monotonic()
    texts = [(p.instruction, p.chosen) for p in pairs] + [
        (p.instruction, p.rejected) for p in pairs
    ]
    scores = score(model, tokenizer, texts, batch=options.batch, max_tokens=options.max_tokens)
    rows = summary(pairs, scores[: len(pairs)], scores[len(pairs) :])
    seconds = time.monotonic() - started
    print("\n".join(report(rows)))
    print(f"{len(texts)} responses in {seconds:.0f} s")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    found = {
        "model": Path(options.model).name,
        "max_tokens": options.max_tokens,
        "responses": len(texts),
        "subsets": rows,
    }
    options.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
