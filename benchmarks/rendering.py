"""Inputs of reward models rendered per second, and when the first engine gets requests.

    python benchmarks/rendering.py --against ../before --out benchmarks/results/rendering.json

`--against` is another checkout of the project; both are measured in turns, each in a process of its
own. The engines do nothing: the seconds are those of templates, of special tokens that are broken,
of tokenizing and of the way to the engine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rmrl.config.schema import RewardConfig
from rmrl.inference.reward_engine_base import EngineSpec, GenerateRequest, PoolingRequest
from rmrl.rewards.kinds.generative.reward import GenerativeReward
from rmrl.rewards.residency import Residency, plan_engines
from rmrl.rewards.session.items import ResponseRow, score_item
from rmrl.rewards.session.scorer import Scorer
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.tokenizer import load_tokenizer
from rmrl.types import Prompt, Sampling
from tests.support.fake_processes import FakeHost
from tests.support.fake_reward_engine import FakeEngine

ROOT = Path(__file__).resolve().parent.parent
TEXT = (
    "the cat sat on a mat and counted seven plus eight to be fifteen while it rained, so the"
    " answer cannot be 12 < 15; therefore we [see section 3] continue with every other case"
)

first_call: dict[str, float] = {}
"""Name of a method -> time of its first call."""


class TimedEngine(FakeEngine):
    """A fake engine that notes when it gets its first requests."""

    def generate(self, requests: Sequence[GenerateRequest]) -> Any:
        first_call.setdefault("generate", time.perf_counter())
        return super().generate(requests)

    def classify(self, requests: Sequence[PoolingRequest]) -> Any:
        first_call.setdefault("classify", time.perf_counter())
        return super().classify(requests)


def engine(path: str, runner: Any) -> EngineSpec:
    """An engine without a model that has the tokenizer of `path`."""
    return EngineSpec(
        path=path,
        runner=runner,
        name="benchmarks.rendering:TimedEngine",
        dtype="float32",
        max_model_len=8192,
        max_num_seqs=8,
        max_num_batched_tokens=512,
        tensor_parallel_size=1,
        gpu_memory_utilization=0.5,
        kv_cache_bytes=1,
        device="cpu",
        threads=1,
    )


def specs(args: argparse.Namespace) -> list[RewardSpec]:
    """A judge with a chat template, and a scalar model that reads pairs."""
    judge = RewardSpec(
        name="judge",
        kind="generative",
        weight=1.0,
        sampling=Sampling(max_tokens=16, temperature=0.0),
        options=GenerativeReward.Options(rubric="correct and helpful"),
        engines={"main": engine(args.judge, "generate")},
    )
    scalar = RewardSpec(
        name="scalar",
        kind="bradley_terry",
        weight=1.0,
        engines={"main": engine(args.scalar, "pooling")},
    )
    return [judge, scalar]


def rows(count: int, words: int, seed: int) -> list[ResponseRow]:
    """Responses of `words` words to prompts of a tenth of them."""
    draw = random.Random(seed)
    vocabulary = TEXT.split()
    responses: list[ResponseRow] = []
    for i in range(count):
        question = " ".join(draw.choices(vocabulary, k=max(4, words // 10)))
        messages: Any = [{"role": "user", "content": question}]
        prompt = Prompt(id=str(i), messages=messages, token_ids=(), ground_truth="1")
        text = f"{i} " + " ".join(draw.choices(vocabulary, k=words))
        responses.append(ResponseRow(prompt=prompt, text=text, group=i))
    return responses


def make_scorer(args: argparse.Namespace) -> Scorer:
    """A scorer of both, with its engines in this process."""
    parts = specs(args)
    tokenizers: dict[str, Any] = {}

    def tokenizer(path: str) -> Any:
        if path not in tokenizers:
            tokenizers[path] = load_tokenizer(path, trust_remote_code=False)
        return tokenizers[path]

    config = RewardConfig(models=[spec.name for spec in parts], max_missing=1.0)
    host = FakeHost()
    residency = Residency(lambda _: host, plan_engines(parts))
    return Scorer(parts, config, residency=residency, tokenizer=tokenizer)


async def measure(args: argparse.Namespace) -> dict[str, float]:
    """One round of one checkout."""
    # The engines are of the module that is imported by name, not of this one, the program.
    from benchmarks.rendering import first_call

    scorer = make_scorer(args)
    result: dict[str, float] = {}
    try:
        await scorer.score(rows(8, args.words, seed=0))
        for c, name in enumerate(("judge", "scalar")):
            responses = rows(args.items, args.words, seed=args.seed)
            items = [score_item(row, scorer.specs[c]) for row in responses]
            reader: Any = scorer.kind(c)
            kind = reader.kind
            started = time.perf_counter()
            kind.render(items)
            result[f"{name}_items_per_s"] = args.items / (time.perf_counter() - started)
        batch = rows(args.items, args.words, seed=args.seed + 1)
        first_call.clear()
        started = time.perf_counter()
        await scorer.score(batch)
        result["both_s"] = time.perf_counter() - started
        result["scalar_starts_s"] = first_call["classify"] - started
        result["judge_starts_s"] = first_call["generate"] - started
    finally:
        await scorer.close()
    return result


def one_round(checkout: Path, args: argparse.Namespace, seed: int) -> dict[str, float]:
    """`measure` in a process that imports rmrl from `checkout`."""
    command = [sys.executable, __file__, "--child", "--seed", str(seed)]
    for name in ("judge", "scalar"):
        command += [f"--{name}", str(Path(getattr(args, name)).resolve())]
    command += ["--items", str(args.items), "--words", str(args.words)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(checkout), str(ROOT)))}
    environment.pop("TOKENIZERS_PARALLELISM", None)
    answer = subprocess.run(
        command, env=environment, cwd=checkout, check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(answer.stdout.splitlines()[-1])


def compare(args: argparse.Namespace) -> None:
    """Measure all rounds of all sides, in turns, and write the results after each."""
    sides = {"this": ROOT}
    if args.against:
        sides["before"] = Path(args.against).resolve()
    rounds: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    for number in range(args.rounds):
        order = list(sides) if number % 2 else list(reversed(sides))
        for side in order:
            rounds[side].append(one_round(sides[side], args, seed=10 * number))
            print(f"  round {number} {side}: {rounds[side][-1]}", flush=True)
        out = Path(args.out)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(summary_of(rounds, args), indent=1), encoding="utf-8")


def summary_of(
    rounds: dict[str, list[dict[str, float]]], args: argparse.Namespace
) -> dict[str, Any]:
    """The medians of this checkout, and over the other's."""
    result: dict[str, Any] = {
        "items": args.items, "words": args.words, "cores": os.cpu_count(), "rounds": rounds
    }  # fmt: skip
    for key in rounds["this"][0]:
        values = [each[key] for each in rounds["this"]]
        summary = {"median": statistics.median(values), "min": min(values), "max": max(values)}
        if "before" in rounds:
            ratios: list[float] = []
            for mine, theirs in zip(rounds["this"], rounds["before"], strict=True):
                ratios.append(mine[key] / theirs[key])
            summary["before"] = statistics.median(each[key] for each in rounds["before"])
            summary |= {"over_before": statistics.median(ratios), "ratios": ratios}
        result[key] = summary
    return result


def main() -> None:
    """Parse arguments, measure, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--judge", default=".models/smollm2", help="folder of a chat tokenizer")
    parser.add_argument(
        "--scalar", default=".models/ms-marco-minilm", help="folder of the scalar's tokenizer"
    )
    parser.add_argument("--against", help="another checkout to measure in turns")
    parser.add_argument("--items", type=int, default=1024, help="responses per round")
    parser.add_argument("--words", type=int, default=1000, help="words of each response")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", default="benchmarks/results/rendering.json")
    args = parser.parse_args()
    if args.child:
        print(json.dumps(asyncio.run(measure(args))))
        return
    compare(args)


if __name__ == "__main__":
    main()
