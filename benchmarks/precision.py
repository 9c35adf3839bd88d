"""How far scores move with the size of the batch they are computed in, by the type that the engine
computes in.

    python benchmarks/precision.py --judge .models/smollm2 --scalar .models/ms-marco-minilm --out
    benchmarks/results/precision.json

The rows are real questions and answers (or generated ones). Each side is one vLLM engine as rmrl
starts it, in a process of its own; it gets all rows in batches of 1, 8 and 32 and once more
shuffled in batches of 8. What moves is compared with batches of 1: logits of the scalar model,
P(Yes) and greedy texts of the judge, whose prompts share a long beginning, as those of a rubric do.
The numbers of each type are also compared with float32's, in batches of 1. `rounded` is bfloat16
with the output head as vLLM computes it by itself: its logits are bfloat16 too.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

SIZES = (1, 8, 32)
ROUNDED = "rounded"
RUBRIC = (
    "You grade the answers of an assistant. An answer is good when it does what the question asks"
    " for, in the form that it asks for, when what it states is true, and when nothing in it is"
    " beside the point. Length alone makes no answer better; neither does a polite tone. An answer"
    " that refuses without need is bad, and so is one that repeats the question. Where a question"
    " has several parts, a good answer treats all of them. Where it asks for a number, a name or a"
    " date, a good answer gives it plainly. Judge by the text alone and do not guess at what its"
    " author may have meant. Say Yes when the answer is good and No when it is bad, and nothing"
    " else."
)
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


def texts(path: Path, count: int) -> list[tuple[str, str]]:
    """(question, answer) pairs of a jsonl with instruction, output_1, output_2, drawn with seed 0;
    generated where it is not there."""
    draw = random.Random(0)
    if not path.is_file():
        return [
            (
                " ".join(draw.choices(WORDS, k=20)),
                " ".join(draw.choices(WORDS, k=draw.randint(10, 200))),
            )
            for _ in range(count)
        ]
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    pairs = [
        (row["instruction"][:800], row[key][:1200])
        for row in rows
        for key in ("output_1", "output_2")
    ]
    return draw.sample(pairs, count)


def engine(path: str, runner: Any, *, dtype: str, threads: int) -> Any:
    """A started vLLM engine in this process."""
    from rmrl.inference.environment import engine_environment
    from rmrl.inference.reward_engine_base import EngineSpec
    from rmrl.inference.vllm.reward_engine import VLLMEngine

    os.environ.update(engine_environment(device="cpu", threads=threads))
    rounded = dtype == ROUNDED
    dtype = "bfloat16" if rounded else dtype
    spec = EngineSpec(
        path=path, runner=runner, name="vllm", dtype=dtype, max_model_len=None, max_num_seqs=128, max_num_batched_tokens=8192,
        tensor_parallel_size=1, gpu_memory_utilization=0.5, kv_cache_bytes=256 * 2**20, device="cpu", threads=threads,
    )  # fmt: skip
    made = VLLMEngine(spec)
    made.start()
    if rounded:
        made._widens = False
    return made


def in_batches(
    compute: Callable[[list[Any]], list[Any]],
    requests: Sequence[Any],
    size: int,
    order: Sequence[int],
) -> list[Any]:
    """One result per request, computed `size` at a time in the given order."""
    results: dict[int, Any] = {}
    for start in range(0, len(order), size):
        batch = order[start : start + size]
        results |= dict(zip(batch, compute([requests[i] for i in batch]), strict=True))
    return [results[i] for i in range(len(requests))]


def by_batch(
    compute: Callable[[list[Any]], list[Any]], requests: Sequence[Any]
) -> dict[str, list[Any]]:
    """The results in batches of each size, and in shuffled ones of 8."""
    order = list(range(len(requests)))
    results = {str(size): in_batches(compute, requests, size, order) for size in SIZES}
    random.Random(1).shuffle(order)
    return results | {"8 shuffled": in_batches(compute, requests, 8, order)}


def scalar(
    path: str, pairs: Sequence[tuple[str, str]], *, dtype: str, threads: int
) -> dict[str, dict[str, list[Any]]]:
    """Raw logits of a pair scorer."""
    made = engine(path, "pooling", dtype=dtype, threads=threads)
    from transformers import AutoTokenizer

    from rmrl.inference.reward_engine_base import PoolingRequest

    tokenizer = AutoTokenizer.from_pretrained(path)
    encoded = [
        tokenizer(question, answer, truncation=True, max_length=512) for question, answer in pairs
    ]
    requests = [PoolingRequest(tuple(e["input_ids"]), tuple(e["token_type_ids"])) for e in encoded]
    return {
        "logit": by_batch(lambda batch: [output.value for output in made.classify(batch)], requests)
    }


def judge(
    path: str, pairs: Sequence[tuple[str, str]], *, dtype: str, threads: int
) -> dict[str, dict[str, list[Any]]]:
    """P(Yes) against No of the first token, and greedy texts of 32 tokens."""
    made = engine(path, "generate", dtype=dtype, threads=threads)
    from transformers import AutoTokenizer

    from rmrl.inference.reward_engine_base import GenerateRequest
    from rmrl.types import Sampling

    tokenizer = AutoTokenizer.from_pretrained(path)
    words = tuple(tokenizer.encode(word, add_special_tokens=False)[0] for word in ("Yes", "No"))
    prompts = [
        f"{RUBRIC}\n\nQuestion: {question}\n\nAnswer: {answer}\n\nIs the answer good?"
        for question, answer in pairs
    ]
    chats = [[{"role": "user", "content": prompt}] for prompt in prompts]
    ids = [
        tuple(
            tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True)[
                "input_ids"
            ]
        )
        for chat in chats
    ]
    first = [
        GenerateRequest(tokens, Sampling(max_tokens=1, temperature=0.0), choice_tokens=words)
        for tokens in ids
    ]
    whole = [
        GenerateRequest(tokens, Sampling(max_tokens=32, temperature=0.0))
        for tokens in ids[: len(ids) // 2]
    ]
    return {
        "P(Yes)": by_batch(
            lambda batch: [_share(output[0].choice_logprobs) for output in made.generate(batch)],
            first,
        ),
        "text": by_batch(lambda batch: [output[0].text for output in made.generate(batch)], whole),
    }


def _share(logprobs: Sequence[float]) -> float:
    """Of the first of two words."""
    return 1.0 / (1.0 + math.exp(logprobs[1] - logprobs[0]))


def shifts(values: dict[str, list[Any]]) -> dict[str, Any]:
    """How far each way of batching is from batches of 1: the largest difference and the rows that
    moved; of texts those that differ."""
    alone = values["1"]
    moved: dict[str, Any] = {"rows": len(alone)}
    for batching, results in values.items():
        if batching == "1":
            continue
        differ = sum(a != b for a, b in zip(results, alone, strict=True))
        moved[batching] = {"differ": differ}
        if not isinstance(alone[0], str):
            moved[batching]["largest"] = max(
                abs(a - b) for a, b in zip(results, alone, strict=True)
            )
    return moved


def from_float32(alone: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """How far each type's numbers are from float32's, and how many different ones there are."""
    found: dict[str, dict[str, float]] = {}
    for dtype, values in alone.items():
        gaps = [abs(a - b) for a, b in zip(values, alone["float32"], strict=True)]
        found[dtype] = {
            "mean": statistics.fmean(gaps),
            "largest": max(gaps),
            "different": len({round(value, 6) for value in values}),
        }
    return found


def side(args: argparse.Namespace, kind: str, dtype: str) -> dict[str, Any]:
    """The results of one engine, in a process of its own; by quantity."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        given = [
            "--judge",
            args.judge,
            "--scalar",
            args.scalar,
            "--texts",
            args.texts,
            "--items",
            str(args.items),
        ]
        command = [
            sys.executable,
            "-m",
            "benchmarks.precision",
            *given,
            "--threads",
            str(args.threads),
            "--one",
            kind,
            dtype,
            str(answer),
        ]
        root = str(Path(__file__).resolve().parent.parent)
        path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
        subprocess.run(command, check=True, timeout=1800, env={**os.environ, "PYTHONPATH": path})
        return json.loads(answer.read_text(encoding="utf-8"))


def main() -> None:
    """Parse arguments, measure, write and print."""
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
    parser.add_argument("--items", type=int, default=64, help="rows")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads of an engine")
    parser.add_argument(
        "--dtypes",
        nargs="+",
        default=["float32", "bfloat16", ROUNDED],
        help="types to compute in",
    )
    parser.add_argument(
        "--out", default="benchmarks/results/precision.json", help="where the JSON goes"
    )
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        kind, dtype, answer = args.one
        pairs = texts(Path(args.texts), args.items)
        path, measure = (args.judge, judge) if kind == "judge" else (args.scalar, scalar)
        values = measure(path, pairs, dtype=dtype, threads=args.threads)
        Path(answer).write_text(json.dumps(values), encoding="utf-8")
        return
    moved: dict[str, Any] = {}
    alone: dict[str, dict[str, list[Any]]] = {}
    for kind in ("scalar", "judge"):
        for dtype in args.dtypes:
            for quantity, values in side(args, kind, dtype).items():
                moved.setdefault(quantity, {})[dtype] = shifts(values)
                alone.setdefault(quantity, {})[dtype] = values["1"]
                print(quantity, dtype, json.dumps(moved[quantity][dtype]), flush=True)
    distances: dict[str, Any] = {}
    if "float32" in args.dtypes:
        distances = {name: from_float32(alone[name]) for name in ("logit", "P(Yes)")}
    print(json.dumps(distances), flush=True)
    result = {
        "device": "cpu",
        "cpu": _cpu_name(),
        "threads": args.threads,
        "against_batches_of_1": moved,
        "against_float32": distances,
    }
    Path(args.out).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _cpu_name() -> str:
    """As the system names it, with the units that decide how bfloat16 is multiplied."""
    lines = (
        Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if Path("/proc/cpuinfo").is_file()
        else []
    )
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    names = {key.strip(): value for key, value in fields.items()}
    units = [unit for unit in ("avx512_bf16", "amx_bf16") if unit in names.get("flags", "").split()]
    return " ".join([names.get("model name", "unknown").strip(), *units])


if __name__ == "__main__":
    main()
