"""All criteria of a rubric in one prompt, with the answers' tokens read at several positions of one
prefill (vLLM's `prompt_logprob_token_ids`), against a request per criterion behind a shared
beginning, as `kind: rubric` sends them.

    python -m benchmarks.label_positions --rows pandalm_human.jsonl

Both sides run in transformers, float32, one response after another: vLLM reads chosen tokens of a
prompt in its second model runner alone, which does not run on a CPU. The side `requests` computes
the shared beginning once and each criterion behind it; `prefill` computes one prompt, in which each
question is followed by no answer, and the next one by the tokens that open a turn. A question of
`prefill` sees the questions before it: `reversed` has them in the other order.

Reported: tokens computed and seconds (prefill / requests), and the differences of P(Yes).
Without `--rows` the responses are made up.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, DynamicCache

from benchmarks.rubric import items
from rmrl.rewards.kinds.judge.token_scores import ScoreTokens
from rmrl.rewards.kinds.rubric.criteria import Criterion
from rmrl.rewards.kinds.rubric.criterion_inputs import criterion_inputs
from rmrl.tokenizer import load_tokenizer
from rmrl.types import ScoreItem

CRITERIA = [
    "The response does what the prompt asks for.",
    "Everything that the response says is right.",
    "The response is complete.",
    "The response is short.",
    "The response is polite.",
    "The response is written in good English.",
    "The response repeats itself.",
    "The response says more than was asked for.",
]
YES_NO = (("No", 0.0), ("Yes", 1.0))


@dataclass(slots=True)
class Side:
    """One way to ask."""

    values: list[float] = field(default_factory=list)
    """P(Yes) of each criterion, response after response."""
    tokens: int = 0
    seconds: list[float] = field(default_factory=list)


def shared_tokens(reads: Sequence[Sequence[int]]) -> int:
    """Return the number of tokens that all inputs begin with."""
    columns = enumerate(zip(*reads, strict=False))
    shortest = min(map(len, reads))
    return next((place for place, column in columns if len(set(column)) > 1), shortest)


class Judge:
    """A model in transformers with its answers' tokens."""

    def __init__(self, path: Path) -> None:
        self.tokenizer: Any = load_tokenizer(str(path), trust_remote_code=False)
        self.model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        answers = ScoreTokens(YES_NO, tokenizer=self.tokenizer, where="benchmark")
        self.answer_ids = list(answers.ids_after(""))

    def inputs(self, rows: Sequence[ScoreItem], count: int) -> list[list[list[int]]]:
        """Return the tokens of each response's inputs, one list per criterion."""
        criteria = [Criterion(text=text, choices=YES_NO) for text in CRITERIA[:count]]
        rendered = criterion_inputs(
            rows, [criteria] * len(rows), self.tokenizer, fenced=True, where="benchmark"
        )
        return [[list(read.token_ids) for read in reads] for reads in rendered]

    def _yes(self, logits: torch.Tensor) -> list[float]:
        return torch.softmax(logits[:, self.answer_ids].double(), dim=-1)[:, 1].tolist()

    def _forward(self, ids: Sequence[int], places: Sequence[int], cache: Any) -> list[float]:
        """Return P(Yes) behind the tokens at some places."""
        logits = self.model(
            torch.tensor([ids]),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=torch.tensor(list(places)),
        ).logits[0]
        return self._yes(logits)

    def requests(self, reads: Sequence[Sequence[int]], side: Side) -> None:
        """Ask one criterion after another behind what all inputs begin with."""
        shared = shared_tokens(reads)
        cache = DynamicCache()
        self._forward(reads[0][:shared], [shared - 1], cache)
        side.tokens += shared
        for read in reads:
            own = len(read) - shared
            side.values += self._forward(read[shared:], [own - 1], cache)
            cache.crop(-own)
            side.tokens += own

    def prefill(self, reads: Sequence[Sequence[int]], side: Side, *, order: int = 1) -> None:
        """Ask all criteria in one prompt; `order` is -1 for the last one first."""
        shared = shared_tokens(reads)
        opening = self.tokenizer.encode("<|im_end|>\n<|im_start|>user\n")
        ids = list(reads[0][:shared])
        places: list[int] = []
        for read in reads[::order]:
            if places:
                ids += opening
            ids += read[shared:]
            places.append(len(ids) - 1)
        side.values += self._forward(ids, places, DynamicCache())[::order]
        side.tokens += len(ids)


def responses(path: Path | None, count: int) -> list[ScoreItem]:
    """Return the first responses of PandaLM's file, or made-up ones."""
    if path is None:
        return items(count, 100, seed=0)
    rows: list[ScoreItem] = []
    for line in path.read_text(encoding="utf-8").splitlines()[:count]:
        entry = json.loads(line)
        prompt = f"{entry['instruction']}\n{entry['input']}".strip()
        message = {"role": "user", "content": prompt}
        rows.append(
            ScoreItem(
                prompt_id=entry["id"],
                messages=[message],
                response=entry["response_1"],
                rm_prompt=prompt,
            )
        )
    return rows


def compared(sides: dict[str, Side]) -> dict[str, Any]:
    """Return tokens and seconds of the prefill over those of requests, and how far P(Yes) moves."""
    alone = sides["requests"]
    result: dict[str, Any] = {}
    for measure in ("tokens", "seconds"):
        ours, theirs = getattr(sides["prefill"], measure), getattr(alone, measure)
        if measure == "seconds":
            ours, theirs = statistics.median(ours), statistics.median(theirs)
        result[f"{measure}_ratio"] = round(ours / theirs, 3)
    for name in ("prefill", "reversed"):
        moved = [abs(a - b) for a, b in zip(sides[name].values, alone.values, strict=True)]
        turned = [
            (a > 0.5) != (b > 0.5) for a, b in zip(sides[name].values, alone.values, strict=True)
        ]
        result[name] = {
            "mean_difference": round(statistics.mean(moved), 4),
            "largest_difference": round(max(moved), 4),
            "other_answer": round(statistics.mean(turned), 4),
        }
    return result


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--judge", type=Path, default=Path(".models/smollm2"))
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--criteria", type=int, nargs="+", default=[2, 8])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/label_positions.json"))
    given = parser.parse_args()
    judge = Judge(given.judge)
    rows = responses(given.rows, given.count)
    result: dict[str, Any] = {"judge": given.judge.name, "responses": len(rows)}
    with torch.inference_mode():
        for count in given.criteria:
            sides = {"requests": Side(), "prefill": Side(), "reversed": Side()}
            for reads in judge.inputs(rows, count):
                for name, side in sides.items():
                    started = time.perf_counter()
                    if name == "requests":
                        judge.requests(reads, side)
                    else:
                        judge.prefill(reads, side, order=-1 if name == "reversed" else 1)
                    side.seconds.append(time.perf_counter() - started)
            result[f"{count} criteria"] = compared(sides)
    text = json.dumps(result, indent=1)
    given.out.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
