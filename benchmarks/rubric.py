"""What a shared beginning saves: k criteria behind one prompt and response, against the same k
criteria each before the response.

    python benchmarks/rubric.py --judge .models/smollm2 --out benchmarks/results/rubric.json

Both sides send one request per criterion to one vLLM engine with its prefix cache: the inputs of
`kind: rubric`, and the same text with the criterion moved to the front, as in most judges, so that
two inputs of a response have nothing in common but the first line. Sides take turns, each round has
texts of its own, and the cache is emptied before each turn. Tokens are those that the engine
computed (prompt tokens less those it found in its cache); seconds are of `engine.generate` alone.
Ratios (shared / separate) are medians over the rounds.

The values of criteria side by side are compared with those of the same requests one at a time from
an empty cache, and with those of a generative reward (`score_tokens`) with the same text.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import math
import os
import random
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rmrl.inference.environment import engine_environment
from rmrl.inference.reward_engine_base import EngineSpec, GenerateRequest
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.kinds.generative.reward import GenerativeReward
from rmrl.rewards.kinds.judge.asking import answer_form, fill, template
from rmrl.rewards.kinds.rubric.reward import RubricReward
from rmrl.rewards.kinds.rule.pool import RulePool
from rmrl.rewards.kinds.shared.context import KindContext
from rmrl.rewards.kinds.shared.rendering import as_judge_input, exhibits, tokenize_all
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.tokenizer import load_tokenizer
from rmrl.types import Sampling, ScoreItem

ROOT = Path(__file__).resolve().parent.parent
WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    "and",
    "counted",
    "seven",
    "plus",
    "eight",
    "to",
    "be",
    "fifteen",
    "while",
    "it",
    "rained",
]
CRITERIA = [
    "The response answers what was asked.",
    "Every number in the response is right.",
    "The response names the animal.",
    "The response says where the animal is.",
    "The response mentions the weather.",
    "The response repeats itself.",
    "A child could follow the response.",
    "The response is in English.",
]


class Direct:
    """Calls to an engine in this process, which are written down."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.requests: list[GenerateRequest] = []

    async def submit(self, method: str, requests: Sequence[Any], **_: Any) -> Any:
        self.requests += requests
        return getattr(self.engine, method)(list(requests))


def engine_spec(args: argparse.Namespace) -> EngineSpec:
    """A vLLM engine with a prefix cache."""
    return EngineSpec(
        path=str(args.judge),
        runner="generate",
        name="vllm",
        dtype=args.dtype,
        max_model_len=4096,
        max_num_seqs=32,
        max_num_batched_tokens=4096,
        tensor_parallel_size=1,
        gpu_memory_utilization=0.5,
        kv_cache_bytes=2 * 2**30,
        device="cpu",
        threads=args.threads,
        kwargs={"enable_prefix_caching": True, "disable_log_stats": False},
    )


def judged(
    engine: Any, tokenizer: Any, rows: Sequence[ScoreItem], kind: str, options: Any
) -> tuple[list[Any], list[GenerateRequest]]:
    """Results of a reward on the engine, and the requests it sent."""
    spec = RewardSpec(
        name="judge",
        kind=kind,
        weight=1.0,
        engines={"main": engine.spec},
        sampling=Sampling(max_tokens=1, temperature=0.0),
        options=options,
    )
    calls = Direct(engine)
    context = KindContext(pool=RulePool(1), tokenizer=lambda _: tokenizer, calls={"main": calls})
    results = asyncio.run(REWARD_KINDS[kind].from_spec(spec, context).score(rows))
    return results, calls.requests


def items(count: int, words: int, seed: int) -> list[ScoreItem]:
    """Responses of `words` words, no two of which begin alike."""
    draw = random.Random(seed)
    rows: list[ScoreItem] = []
    for i in range(count):
        prompt = f"{draw.random()} " + " ".join(draw.choices(WORDS, k=max(8, words // 8))) + "?"
        text = " ".join(draw.choices(WORDS, k=words))
        message = {"role": "user", "content": prompt}
        rows.append(
            ScoreItem(prompt_id=f"{seed}:{i}", messages=[message], response=text, rm_prompt=prompt)
        )
    return rows


def separate(
    shared: Sequence[GenerateRequest], rows: Sequence[ScoreItem], tokenizer: Any, k: int
) -> list[GenerateRequest]:
    """The requests of a rubric with each criterion in front of prompt and response."""
    frame = template("rubric")
    part = "Criterion:\n{criterion}\n\n"
    frame = frame.replace(part, "").replace("Prompt:\n", f"{part}Prompt:\n")
    reads: list[Any] = []
    for item, exhibit in zip(rows, exhibits(rows, tokenizer, fenced=True), strict=True):
        for criterion in CRITERIA[:k]:
            values = {
                "prompt": str(item.rm_prompt),
                "response": exhibit.text,
                "criterion": criterion,
                "answer": answer_form(scale=(), choices=("No", "Yes")),
            }
            reads.append(as_judge_input(fill(frame, values), exhibit, tokenizer))
    rendered = tokenize_all(reads, tokenizer, generation_prompt=True, where="benchmark")
    requests: list[GenerateRequest] = []
    for request, read in zip(shared, rendered, strict=True):
        requests.append(dataclasses.replace(request, token_ids=read.token_ids, text=read.text))
    return requests


def timed(engine: Any, requests: Sequence[GenerateRequest]) -> dict[str, Any]:
    """Seconds, tokens in all and tokens computed of one call, from an empty cache."""
    llm = engine._llm
    llm.reset_prefix_cache()
    found: list[int] = []
    plain = llm.generate

    def watched(*arguments: Any, **named: Any) -> Any:
        answers = plain(*arguments, **named)
        found.extend(answer.num_cached_tokens or 0 for answer in answers)
        return answers

    llm.generate = watched
    started = time.perf_counter()
    try:
        outputs = engine.generate(list(requests))
    finally:
        llm.generate = plain
    seconds = time.perf_counter() - started
    tokens = sum(len(request.token_ids) for request in requests)
    return {
        "seconds": seconds,
        "tokens": tokens,
        "computed": tokens - sum(found),
        "outputs": len(outputs),
    }


def agreement(engine: Any, tokenizer: Any, rows: Sequence[ScoreItem], k: int) -> dict[str, float]:
    """Largest difference of a criterion's value between the rubric's requests side by side and
    (alone) each on its own, from an empty cache; (generative) a generative reward with
    `score_tokens` whose inputs have the same text."""
    options = RubricReward.Options(criteria=CRITERIA[:k])
    engine._llm.reset_prefix_cache()
    results, requests = judged(engine, tokenizer, rows, "rubric", options)
    values: list[float] = []
    for result in results:
        values += [record["value"] for record in result.extra["criteria"]]
    alone: list[float] = []
    for request in requests:
        engine._llm.reset_prefix_cache()
        ((output,),) = engine.generate([request])
        no, yes = output.choice_logprobs
        alone.append(1 / (1 + math.exp(no - yes)))
    question = template("rubric").split("{response}\n\n")[1].removesuffix("{answer}").strip()
    plain: list[float] = []
    for item in rows:
        for criterion in CRITERIA[:k]:
            engine._llm.reset_prefix_cache()
            yes_no = GenerativeReward.Options(
                question=fill(question, {"criterion": criterion}),
                score_tokens={"No": 0.0, "Yes": 1.0},
            )
            ((result,), _) = judged(engine, tokenizer, [item], "generative", yes_no)
            plain.append(result.value)
    return {
        "alone": max(abs(a - b) for a, b in zip(values, alone, strict=True)),
        "generative": max(abs(a - b) for a, b in zip(values, plain, strict=True)),
        "values": len(values),
    }


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--judge", type=Path, default=ROOT / ".models/smollm2")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--items", type=int, default=4)
    parser.add_argument("--words", type=int, nargs="+", default=[200, 800])
    parser.add_argument("--criteria", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    os.environ.update(engine_environment(device="cpu", threads=args.threads))
    from rmrl.inference.vllm.reward_engine import VLLMEngine

    tokenizer = load_tokenizer(str(args.judge), trust_remote_code=False)
    engine = VLLMEngine(engine_spec(args))
    engine.start()
    cases: dict[str, Any] = {}
    for words in args.words:
        rounds: list[dict[str, Any]] = []
        for number in range(-1, args.rounds):
            rows = items(args.items, words, seed=1000 * words + number)
            options = RubricReward.Options(criteria=CRITERIA[: args.criteria])
            _, shared = judged(engine, tokenizer, rows, "rubric", options)
            sides = {"shared": shared, "separate": separate(shared, rows, tokenizer, args.criteria)}
            order = sorted(sides, reverse=number % 2 == 0)
            result = {name: timed(engine, sides[name]) for name in order}
            if number >= 0:  # the first one warms up
                rounds.append(result)
        case: dict[str, Any] = {
            "rounds": args.rounds,
            "items": args.items,
            "criteria": args.criteria,
        }
        for measure in ("computed", "seconds"):
            ratios = [each["shared"][measure] / each["separate"][measure] for each in rounds]
            case[f"{measure}_ratio"] = statistics.median(ratios)
            case[f"{measure}_ratio_range"] = [min(ratios), max(ratios)]
        for name in ("shared", "separate"):
            for measure in ("seconds", "tokens", "computed"):
                case[f"{name}_{measure}"] = statistics.median(
                    each[name][measure] for each in rounds
                )
        cases[f"{words} words"] = case
        print(words, json.dumps(case), flush=True)
    rows = items(args.items, 100, seed=7)
    differences = agreement(engine, tokenizer, rows, min(args.criteria, 4))
    print(json.dumps(differences), flush=True)
    if args.out:
        judge = args.judge.name
        settings = {"judge": judge, "dtype": args.dtype, "threads": args.threads}
        written = {**settings, "cases": cases, "largest_difference": differences}
        args.out.write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
