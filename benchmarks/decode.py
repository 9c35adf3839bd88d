"""What a decode step costs beside the model: bare vLLM with its incremental detokenizer and without,
with a seed per sample and without, and rmrl's rollout engine, on one engine in one process.

    python -m benchmarks.decode --model .models/tiny-arith --batches 64 256 --rounds 5 --out
    benchmarks/results/decode.json

All sides sample the same number of tokens for the same prompts with log-probabilities; they take
turns in every round. The model is so small that a step is Python nearly throughout. Ratios are the
medians over rounds of (bare vLLM as it comes / the side), with the least and the greatest.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks.result_file import print_and_write

PROMPT = [5, 6, 7, 8]
SIDES: dict[str, dict[str, bool]] = {
    "vllm": {"detokenize": True, "seeds": False},
    "vllm, seeds": {"detokenize": True, "seeds": True},
    "vllm, no detokenizer": {"detokenize": False, "seeds": False},
    "vllm, no detokenizer, seeds": {"detokenize": False, "seeds": True},
    "rmrl": {"seeds": True},
    "rmrl, no seeds": {"seeds": False},
}


def rollout_settings(args: argparse.Namespace) -> Any:
    """Return settings of a rollout engine that holds the largest batch at once."""
    from rmrl.config.schema.rollout import RolloutConfig
    from rmrl.inference.rollout_base import RolloutEngineSettings

    most = max(args.batches)
    config = RolloutConfig(
        dtype="float32",
        kv_cache_bytes=512 * 2**20,
        max_num_seqs=most,
        max_num_batched_tokens=most * len(PROMPT),
    )
    return RolloutEngineSettings.of(
        config,
        path=args.model,
        tokenizer=None,
        device=args.device,
        threads=args.threads,
        max_model_len=len(PROMPT) + args.tokens + 1,
        trust_remote_code=False,
    )


def bare(engine: Any, batch: int, tokens: int, *, detokenize: bool, seeds: bool, call: int) -> None:
    """Sample `batch` sequences as a user of LLMEngine would."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    for number in range(batch):
        params = SamplingParams(
            max_tokens=tokens,
            ignore_eos=True,
            logprobs=0,
            detokenize=detokenize,
            seed=call * batch + number if seeds else None,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        engine.add_request(f"{call}-{number}", {"prompt_token_ids": PROMPT}, params)
    while engine.has_unfinished_requests():
        engine.step()


async def ours(rollout: Any, batch: int, tokens: int, *, seeds: bool, call: int) -> None:
    """Sample `batch` sequences through rmrl's engine."""
    from rmrl.types import Sampling

    sampling = Sampling(
        max_tokens=tokens, n=batch, ignore_eos=True, seed=call * batch if seeds else None
    )
    async for _ in rollout.generate([PROMPT], sampling):
        pass


async def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Return milliseconds per step by batch size and side."""
    from rmrl.inference.vllm.rollout import VLLMRollout

    rollout = VLLMRollout(rollout_settings(args))
    await rollout.start()
    results: dict[str, Any] = {}
    call = 0
    for batch in args.batches:
        steps: dict[str, list[float]] = {name: [] for name in SIDES}
        for number in range(args.rounds + 1):
            order = list(SIDES) if number % 2 else list(reversed(SIDES))
            for name in order:
                call += 1
                spent = await _timed(rollout, batch, args.tokens, name, call)
                if number:  # round 0 warms up
                    steps[name].append(spent)
        results[str(batch)] = _summary(steps)
        print(json.dumps({batch: results[str(batch)]["ratio"]}), flush=True)
    return results


async def _timed(rollout: Any, batch: int, tokens: int, name: str, call: int) -> float:
    """Return the milliseconds per decode step of one side."""
    started = time.perf_counter()
    if name.startswith("rmrl"):
        await ours(rollout, batch, tokens, **SIDES[name], call=call)
    else:
        bare(rollout._engine, batch, tokens, **SIDES[name], call=call)  # type: ignore[arg-type]
    return (time.perf_counter() - started) * 1000 / tokens


def _summary(steps: dict[str, list[float]]) -> dict[str, Any]:
    ratios: dict[str, list[float]] = {}
    for name, times in steps.items():
        rounds = zip(steps["vllm"], times, strict=True)
        each = sorted(theirs / side for theirs, side in rounds)
        ratios[name] = [round(x, 2) for x in (statistics.median(each), each[0], each[-1])]
    rounded = {name: [round(x, 2) for x in times] for name, times in steps.items()}
    median = {name: round(statistics.median(times), 2) for name, times in steps.items()}
    return {"ms_per_step": median, "ratio": ratios, "rounds": rounded}


def main() -> None:
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", default=".models/tiny-arith")
    parser.add_argument("--batches", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--tokens", type=int, default=64, help="tokens per sample")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()

    from rmrl.inference.environment import engine_environment

    os.environ.update(engine_environment(device=args.device, threads=args.threads))
    results = {
        "model": args.model,
        "tokens": args.tokens,
        "threads": args.threads,
        "batches": asyncio.run(measure(args)),
    }
    print_and_write(results, args.out)


if __name__ == "__main__":
    main()
