"""Scoring through rmrl against the bare engine, and against a plain Hugging Face loop, on the same
inputs, as ratios from one run.

    python benchmarks/scoring.py --judge .models/smollm2 --scalar .models/ms-marco-minilm --out
    benchmarks/results/scoring.json
    python benchmarks/scoring.py --cases judge_32_words --items 32

A case is written into the results beside those of other runs.

rmrl's side is the whole reward layer: drop-in, rendering, tokenizing, the engine in its own
process, parsing, combination. The others get token ids. Sides take turns in every round, each round
with texts of its own, so that no prefix cache helps anyone; the ratio is the median over rounds of
(their seconds / our seconds): above 1, rmrl is faster.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.rewards.rig import open_scorer
from rmrl.cluster.devices import cores, local_devices
from rmrl.cluster.processes import RayHost
from rmrl.config.schema import RewardConfig, RewardEngineConfig
from rmrl.inference.environment import engine_environment
from rmrl.inference.reward_engine_base import EngineSpec
from rmrl.inference.vllm.arguments import (
    EXACT_ARGUMENTS,
    EXACT_ENVIRONMENT,
    engine_arguments,
)
from rmrl.rewards.session.items import ResponseRow, score_item
from rmrl.rewards.session.scorer import Scorer
from rmrl.types import Prompt

ROOT = Path(__file__).resolve().parent.parent
DEADLINE_S = 1800.0


def texts(path: Path, count: int, seed: int) -> list[ResponseRow]:
    """Questions and answers of a jsonl with instruction / output_1 / output_2, or generated ones of
    mixed length."""
    draw = random.Random(seed)
    if path.is_file():
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        pairs = [(row["instruction"], row[key]) for row in rows for key in ("output_1", "output_2")]
    else:
        words = [
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
        pairs = [
            (
                " ".join(draw.choices(words, k=20)),
                " ".join(draw.choices(words, k=draw.randint(10, 200))),
            )
            for _ in range(count)
        ]
    pairs = [(question[:600], f"{i}. {answer[:900]}") for i, (question, answer) in enumerate(pairs)]
    draw.shuffle(pairs)
    chosen = [pairs[i % len(pairs)] for i in range(count)]
    asked = [
        Prompt(id=str(i), messages=[{"role": "user", "content": q}], token_ids=(), ground_truth="1")
        for i, (q, _) in enumerate(chosen)
    ]
    return [
        ResponseRow(prompt=prompt, text=f"{i} {a}", group=i)
        for i, (prompt, (_, a)) in enumerate(zip(asked, chosen, strict=True))
    ]


def serving(spec: EngineSpec, *, defaults: bool) -> dict[str, Any]:
    """The bare engine's arguments: those that rmrl's engine of this spec gets. With `defaults`
    those that make a score independent of its batch, in float32 on CPU, are left to vLLM."""
    pooling = {"pooler_config": {"use_activation": False}} if spec.runner == "pooling" else {}
    arguments = engine_arguments(spec, runner=spec.runner, max_model_len=spec.context_length())
    if spec.device == "cpu" and spec.dtype == "float32" and not defaults:
        arguments = EXACT_ARGUMENTS | arguments
    return arguments | pooling


JUDGE = {"kind": "generative", "sampling": {"temperature": 0.0, "max_tokens": 16}}
RUBRICS = ("correct and complete", "polite and clear", "short, without repetition")
CASES: dict[str, tuple[int, int]] = {
    "judge_32_words": (32, 1),
    "judge_1000_words": (1000, 1),
    "three_judges_32_words": (32, 3),
    "scalar_32_words": (32, 0),
    "scalar_300_words": (300, 0),
}
"""Name -> (words of a response, judges on one checkpoint; 0: the scalar model, whose context has
512 tokens)."""


def worded(words: int, count: int, seed: int) -> list[ResponseRow]:
    """Responses of `words` words; no two begin alike."""
    draw = random.Random(seed)
    vocabulary = "the cat sat on a mat and counted seven plus eight while it rained all day".split()  # noqa: SIM905
    responses: list[ResponseRow] = []
    for i in range(count):
        question = f"{draw.random()} What does the cat of house {i} do?"
        messages: Any = [{"role": "user", "content": question}]
        prompt = Prompt(id=str(i), messages=messages, token_ids=(), ground_truth="1")
        text = " ".join([str(draw.random()), *draw.choices(vocabulary, k=words - 1)])
        responses.append(ResponseRow(prompt=prompt, text=text, group=i))
    return responses


def bare_environment(device: Any, threads: int, args: argparse.Namespace) -> dict[str, str]:
    """Environment of the processes beside rmrl's."""
    environment = {**engine_environment(device=device, threads=threads), "PYTHONPATH": str(ROOT)}
    if not args.bare_defaults:
        environment |= EXACT_ENVIRONMENT
    return environment


async def measure_case(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """One of CASES."""
    words, judges = CASES[name]
    device = local_devices("auto").kind
    threads = args.threads or cores()
    specs: dict[str, Any] = {}
    for rubric in RUBRICS[:judges]:
        engine = {"max_model_len": 2048}
        specs[f"judge_{len(specs)}"] = {**JUDGE, "path": args.judge, "rubric": rubric, "engine": engine}  # fmt: skip
    if not judges:
        specs["relevance"] = {"path": args.scalar}
    shared: Any = {"residency": "resident", "gpu_memory_utilization": 0.2, "threads": threads}
    config = RewardConfig(
        models=list(specs), specs=specs, engine=RewardEngineConfig(**shared), max_missing=1.0
    )
    environment = bare_environment(device, threads, args)

    def rows(seed: int) -> list[ResponseRow]:
        return worded(words, args.items, seed)

    async with open_scorer(config) as scorer:
        result = await compare(scorer, RayHost(environment=environment), args, rows=rows)
    settings = {"items": args.items, "words": words, "judges": judges, "threads": threads}
    return {**settings, "device": device, **result}


async def measure(args: argparse.Namespace) -> dict[str, Any]:
    """All ratios of one run."""
    device = local_devices("auto").kind
    threads = args.threads or cores()
    shared = {"residency": "resident", "gpu_memory_utilization": 0.2, "threads": threads}
    specs = {
        "answer_judge": {"path": args.judge, "engine": {"max_model_len": 2048}},
        "relevance": {"path": args.scalar},
    }
    environment = bare_environment(device, threads, args)
    per_model = {}
    for name, entries in specs.items():
        config = RewardConfig(
            models=[name],
            specs={name: entries},
            engine=RewardEngineConfig(**shared),
            max_missing=1.0,
        )
        async with open_scorer(config) as scorer:
            per_model[name] = await compare(scorer, RayHost(environment=environment), args)
    return {
        "device": device,
        "threads": threads,
        "items_per_round": args.items,
        "rounds": args.rounds,
        **per_model,
    }


async def compare(
    scorer: Scorer,
    host: RayHost,
    args: argparse.Namespace,
    *,
    rows: Callable[[int], list[ResponseRow]] | None = None,
) -> dict[str, Any]:
    """Rewards of one engine: rmrl, the bare engine, and for scalars Hugging Face, in turns.
    `rows(seed)`: the responses of a round; None: `texts`."""
    spec = scorer.specs[0]
    assert spec.engine is not None
    bare = await host.spawn(
        "benchmarks.peers:BareVLLM",
        {"arguments": serving(spec.engine, defaults=args.bare_defaults)},
        name="bare",
    )
    peers: dict[str, Any] = {"bare_vllm": bare}
    if spec.engine.runner == "pooling":
        settings = {
            "path": spec.engine.path,
            "dtype": spec.engine.dtype,
            "threads": spec.engine.threads,
        }
        peers["hf_padded"] = await host.spawn(
            "benchmarks.peers:PaddedHuggingFace", settings, name="hf"
        )
    seconds: dict[str, list[float]] = {name: [] for name in ("rmrl", *peers)}
    tokens = 0
    for number in range(args.rounds + 1):
        batch = rows(number) if rows else texts(Path(args.texts), args.items, seed=number)
        rendered: list[tuple[int, ...]] = []
        for c in range(len(scorer.specs)):
            reader: Any = scorer.kind(c)
            kind = reader.kind
            items = [score_item(row, scorer.specs[c]) for row in batch]
            rendered += [read.token_ids for read in kind.render(items)]
        order = list(seconds) if number % 2 else list(reversed(seconds))
        for name in order:
            spent = await (
                _ours(scorer, batch) if name == "rmrl" else _theirs(peers[name], rendered, spec)
            )
            if number:  # round 0 warms up
                seconds[name].append(spent)
        tokens += sum(map(len, rendered)) if number else 0
        print(
            f"  {spec.name} round {number}: "
            + ", ".join(f"{n} {s[-1]:.2f}s" for n, s in seconds.items() if s),
            flush=True,
        )
    for peer in peers.values():
        await peer.kill()
    ours = seconds["rmrl"]
    ratios: dict[str, Any] = {}
    for name in peers:
        by_round = [t / o for t, o in zip(seconds[name], ours, strict=True)]
        ratios[f"{name}_over_rmrl"] = statistics.median(by_round)
        ratios[f"{name}_by_round"] = by_round
    return {
        "model": Path(spec.engine.path).name,
        "tokens_per_round": tokens // args.rounds,
        "seconds": seconds,
        **ratios,
    }


async def _ours(scorer: Scorer, rows: list[ResponseRow]) -> float:
    started = time.perf_counter()
    await scorer.score(rows)
    return time.perf_counter() - started


async def _theirs(peer: Any, rendered: list[tuple[int, ...]], spec: Any) -> float:
    if spec.sampling is not None:
        sampling = {
            "temperature": 0.0,
            "max_tokens": spec.sampling.max_tokens,
            "stop": list(spec.sampling.stop),
        }
        return await peer.call("generate", rendered, sampling, timeout_s=DEADLINE_S)
    return await peer.call("classify", rendered, timeout_s=DEADLINE_S)


def draw(result: dict[str, Any], path: Path) -> None:
    """Bars of the ratios with the line of equality."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    bars = {f"{name}\nvs {key.removesuffix('_over_rmrl')}": value for name in ("answer_judge", "relevance")
            for key, value in result[name].items() if key.endswith("_over_rmrl")}  # fmt: skip
    figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    axes.bar(list(bars), list(bars.values()), color="#4477aa")
    axes.axhline(1.0, color="black", linewidth=1)
    axes.set_ylabel("their seconds / rmrl's seconds")
    axes.set_title("scoring: above 1, rmrl is faster")
    for i, value in enumerate(bars.values()):
        axes.text(i, value, f"{value:.2f}", ha="center", va="bottom")
    figure.savefig(path, dpi=120)


def main() -> None:
    """Parse arguments, measure, write JSON and PNG."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--judge", default=".models/smollm2", help="checkpoint of the generative judge"
    )
    parser.add_argument(
        "--scalar", default=".models/ms-marco-minilm", help="checkpoint of the scalar model"
    )
    parser.add_argument(
        "--texts",
        default="../shared/data/pref/llmbar.jsonl",
        help="jsonl with instruction, output_1, output_2",
    )
    parser.add_argument("--items", type=int, default=96, help="responses per round")
    parser.add_argument(
        "--rounds", type=int, default=5, help="measured rounds, after one to warm up"
    )
    parser.add_argument(
        "--threads", type=int, default=0, help="CPU threads per engine; 0: all cores"
    )
    parser.add_argument(
        "--out",
        default="benchmarks/results/scoring.json",
        help="where the JSON goes; a PNG of the same name beside it",
    )
    parser.add_argument(
        "--bare-defaults",
        action="store_true",
        help="the bare engine caches prefixes and cuts prompts, as vLLM does by itself",
    )
    parser.add_argument(
        "--cases", nargs="*", default=[], choices=list(CASES), help="measure these alone"
    )
    args = parser.parse_args()
    out = Path(args.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(out.read_text(encoding="utf-8")) if out.is_file() else {}
    if args.cases:
        for name in args.cases:
            known.setdefault("cases", {})[name] = asyncio.run(measure_case(name, args))
            print(name, known["cases"][name]["bare_vllm_over_rmrl"])
            out.write_text(json.dumps(known, indent=1), encoding="utf-8")
        return
    result = asyncio.run(measure(args))
    if "cases" in known:
        result["cases"] = known["cases"]
    out.write_text(json.dumps(result, indent=1), encoding="utf-8")
    draw(result, out.with_suffix(".png"))
    for name in ("answer_judge", "relevance"):
        print(name, {k: round(v, 3) for k, v in result[name].items() if k.endswith("_over_rmrl")})


if __name__ == "__main__":
    main()
