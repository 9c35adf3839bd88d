"""How verdicts that a judge is asked for compare with those read from the same texts.

    python -m benchmarks.asked_verdicts --rows ../shared/data/judge/absolute_gpt4_scores.jsonl

A judge in one vLLM engine with its prefix cache writes a text about each response, greedily. The
same texts are read with `verdict: parse` and asked with `verdict: ask`. Rows are objects with
instruction, response and gpt4_score (several scores from 1 to 5). Tokens computed are those of the
prompts less those that the engine found in its cache, and those written.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scipy.stats import spearmanr

from benchmarks.result_file import print_and_write
from benchmarks.rubric import engine_spec
from rmrl.inference.environment import engine_environment
from rmrl.inference.reward_engine_base import TextOutput
from rmrl.rewards.kinds.generative.reward import GenerativeReward
from rmrl.rewards.kinds.rule.pool import RulePool
from rmrl.rewards.kinds.shared.context import KindContext
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.tokenizer import load_tokenizer
from rmrl.types import Sampling, ScoreItem, ScoreResult

RUBRIC = "5: complete, correct and helpful. 3: helps in part. 1: wrong or useless."


class Calls:
    """Calls to an engine in this process, measured. The texts are written once."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.texts: list[list[TextOutput]] = []
        self.cost: dict[str, dict[str, float]] = {}

    async def submit(self, method: str, requests: Sequence[Any], **_: Any) -> list[Any]:
        """Answer requests that read the verdict, and the first ones that write a text."""
        if requests[0].choice_tokens:
            return self.measured("asking", method, requests)
        if not self.texts:
            self.texts = self.measured("writing", method, requests)
        return self.texts

    def measured(self, phase: str, method: str, requests: Sequence[Any]) -> list[Any]:
        """The outputs; `cost` has their cost."""
        llm = self.engine._llm
        plain = llm.generate
        cached: list[int] = []

        def watched(*arguments: Any, **named: Any) -> Any:
            answers = plain(*arguments, **named)
            cached.extend(answer.num_cached_tokens or 0 for answer in answers)
            return answers

        llm.generate = watched
        started = time.perf_counter()
        try:
            outputs = getattr(self.engine, method)(list(requests))
        finally:
            llm.generate = plain
        seconds = time.perf_counter() - started
        read = sum(len(request.token_ids) for request in requests)
        written = sum(output.tokens_out for samples in outputs for output in samples)
        self.cost[phase] = {
            "requests": len(requests),
            "tokens_read": read,
            "tokens_computed": read - sum(cached) + written,
            "tokens_written": written,
            "seconds": seconds,
        }
        return outputs


def scored(
    calls: Calls, tokenizer: Any, rows: Sequence[ScoreItem], args: argparse.Namespace, verdict: str
) -> list[ScoreResult]:
    """The results of one way."""
    options = GenerativeReward.Options(
        rubric=RUBRIC, scale=[1, 5], normalize=False, verdict=verdict
    )
    spec = RewardSpec(
        name="judge",
        kind="generative",
        weight=1.0,
        engines={"main": calls.engine.spec},
        sampling=Sampling(max_tokens=args.max_tokens, temperature=0.0),
        options=options,
    )
    context = KindContext(pool=RulePool(1), tokenizer=lambda _: tokenizer, calls={"main": calls})
    return asyncio.run(GenerativeReward.from_spec(spec, context).score(rows))


def figures_of(results: Sequence[ScoreResult], gpt4: Sequence[float]) -> dict[str, Any]:
    """The figures of one way."""
    verdicts: list[float] = []
    scores: list[float] = []
    for result, score in zip(results, gpt4, strict=True):
        if result.value is not None:
            verdicts.append(result.value)
            scores.append(score)
    return {
        "statuses": dict(Counter(result.status for result in results)),
        "without_a_verdict": 1 - len(verdicts) / len(results),
        "verdicts": dict(sorted(Counter(f"{value:g}" for value in verdicts).items())),
        "rank_correlation_with_gpt4": float(spearmanr(verdicts, scores).statistic),
    }


def compared(parsed: Sequence[ScoreResult], asked: Sequence[ScoreResult]) -> dict[str, Any]:
    """Where both ways have a verdict: how often it is the same."""
    differences: list[float] = []
    masses: list[float] = []
    for by_parser, by_asking in zip(parsed, asked, strict=True):
        if by_parser.value is not None and by_asking.value is not None:
            differences.append(abs(by_parser.value - by_asking.value))
        if "label_mass" in by_asking.extra:
            masses.append(by_asking.extra["label_mass"])
    return {
        "both_have_a_verdict": len(differences),
        "equal": sum(difference == 0 for difference in differences),
        "within_one": sum(difference <= 1 for difference in differences),
        "label_mass": {"median": statistics.median(masses), "least": min(masses)},
    }


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """All figures."""
    from rmrl.inference.vllm.reward_engine import VLLMEngine

    lines = args.rows.read_text(encoding="utf-8").splitlines()
    chosen = random.Random(0).sample(list(map(json.loads, lines)), args.count)
    rows: list[ScoreItem] = []
    gpt4: list[float] = []
    for index, row in enumerate(chosen):
        prompt = row["instruction"]
        message = {"role": "user", "content": prompt}
        rows.append(
            ScoreItem(
                prompt_id=str(index),
                messages=[message],
                response=row["response"],
                rm_prompt=prompt,
            )
        )
        gpt4.append(statistics.fmean(row["gpt4_score"]))
    tokenizer = load_tokenizer(str(args.judge), trust_remote_code=False)
    calls = Calls(VLLMEngine(engine_spec(args)))
    calls.engine.start()
    asked = scored(calls, tokenizer, rows, args, "ask")
    parsed = scored(calls, tokenizer, rows, args, "parse")
    return {
        "parse": figures_of(parsed, gpt4),
        "ask": figures_of(asked, gpt4),
        "together": compared(parsed, asked),
        "cost": calls.cost,
    }


def main() -> None:
    """Measure, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--judge", type=Path, default=Path(".models/smollm2"))
    parser.add_argument(
        "--rows", type=Path, default=Path("../shared/data/judge/absolute_gpt4_scores.jsonl")
    )
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--count", type=int, default=48)
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/asked_verdicts.json"))
    args = parser.parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.update(engine_environment(device="cpu", threads=args.threads))
    settings = {name: getattr(args, name) for name in ("dtype", "count", "max_tokens", "threads")}
    names = {"judge": args.judge.name, "rows": args.rows.name}
    print_and_write({**names, **settings, **measure(args)}, args.out)


if __name__ == "__main__":
    main()
