"""What an environment of verifiers costs beside a loop that plays the same task itself, on one
rollout engine in one process.

    python -m benchmarks.environment --agents .venv-agents/bin/python --out
    benchmarks/results/environment.json

The task is that of examples/agents: find a number in three guesses. The bare loop asks the engine
for all guesses of a turn in one call, compares them in Python and appends the answer's tokens: what
a user writes who needs no environment. The other side is `rollout.source=verifiers` with its
endpoint, its host process and verifiers' harness. The sides take turns; ratios are environment /
loop, the median over rounds with the least and the greatest. The host's share is the CPU seconds of
its process over the wall time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.result_file import print_and_write

TURNS = 3
TOKENS = 96
ENVS = Path("examples/agents/envs")


async def bare_loop(rollout: Any, tokenizer: Any, secrets: list[int], seed: int) -> int:
    """Play all samples in step with each other. Returns how many turns were drawn."""
    from rmrl.types import Sampling

    opening = tokenizer.apply_chat_template(
        [{"role": "user", "content": "n="}], add_generation_prompt=True, return_dict=False
    )
    contexts = [list(opening) for _ in secrets]
    live = list(range(len(secrets)))
    turns = 0
    for turn in range(TURNS):
        sampling = Sampling(max_tokens=TOKENS // TURNS, n=1, seed=seed + turn)
        drawn: dict[int, Any] = {}
        async for sample in rollout.generate([contexts[i] for i in live], sampling):
            drawn[live[sample.prompt_index]] = sample
        turns += len(drawn)
        going: list[int] = []
        for i in live:
            text = tokenizer.decode(drawn[i].token_ids, skip_special_tokens=True).strip()
            guess = int(text) if text.lstrip("-").isdigit() else None
            if guess == secrets[i]:
                continue
            answer = "?"
            if guess is not None:
                sign = "+" if secrets[i] > guess else "-"
                answer = f"{guess}{sign}{abs(secrets[i] - guess)}="
            contexts[i] += [*drawn[i].token_ids.tolist(), *tokenizer.encode(answer)]
            going.append(i)
        live = going
    return turns


async def environment(rollout: Any, source: Any, prompts: list[Any], n: int, seed: int) -> int:
    """Play all samples through verifiers. Returns how many turns were drawn."""
    from rmrl.types import Sampling

    async def draw(tokens: Any, sampling: Any, _trace: str) -> Any:
        (sample,) = [each async for each in rollout.generate([list(tokens)], sampling)]
        return sample

    rollouts = await source.generate(
        draw,
        prompts,
        Sampling(max_tokens=TOKENS, n=n, seed=seed),
        on_finished=lambda _: None,
        on_response=lambda *_: None,
    )
    assert all(response.sampled for response in rollouts.responses)
    return sum(
        turn.role == "assistant" for response in rollouts.responses for turn in response.turns
    )


async def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Return seconds, turns and ratios."""
    from transformers import AutoTokenizer

    from rmrl.config.schema.rollout import RolloutConfig, VerifiersConfig
    from rmrl.environments.source import VerifiersSource, read_tasks
    from rmrl.inference.rollout_base import RolloutEngineSettings
    from rmrl.inference.vllm.rollout import VLLMRollout
    from rmrl.types import Prompt

    play = {"runtime": {"type": "subprocess"}, "harness": {"id": "find_number"}}
    settings = VerifiersConfig(
        env="find_number",
        args={"agent": play},
        python=args.agents,
        path=[str(ENVS)],
        turns=TURNS,
        at_once=96,
    )
    log = Path(tempfile.mkdtemp()) / "environment.log"
    tasks = await read_tasks(settings, args.prompts, log=log)
    prompts: list[Any] = []
    for number, task in enumerate(tasks):
        messages: Any = [{"role": "user", "content": task["prompt"]}]
        extra = {"task": json.dumps(task)}
        prompts.append(Prompt(id=str(number), messages=messages, token_ids=(1,), extra_info=extra))
    secrets = [task["secret"] for task in tasks for _ in range(args.n)]
    rollout = VLLMRollout(
        RolloutEngineSettings.of(
            RolloutConfig(dtype="float32", kv_cache_bytes=256 * 2**20),
            path=args.model,
            tokenizer=None,
            device="cpu",
            threads=args.threads,
            max_model_len=160,
            trust_remote_code=False,
        )
    )
    await rollout.start()
    source = VerifiersSource(
        settings, model=args.model, max_model_len=160, max_response_length=TOKENS, log=log
    )
    await source.start()
    host = next(
        process
        for process in psutil.Process().children(recursive=True)
        if "verifiers_host.py" in " ".join(process.cmdline())
    )
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    rounds: list[dict[str, float]] = []
    try:
        for number in range(args.rounds + 1):
            started = time.perf_counter()
            bare_turns = await bare_loop(rollout, tokenizer, secrets, 1000 * number)
            bare_s = time.perf_counter() - started
            busy = sum(host.cpu_times()[:2])
            started = time.perf_counter()
            turns = await environment(rollout, source, prompts, args.n, 1000 * number)
            played_s = time.perf_counter() - started
            rounds.append(
                {
                    "loop_s": bare_s,
                    "loop_turns": bare_turns,
                    "environment_s": played_s,
                    "environment_turns": turns,
                    "host_cpu_s": sum(host.cpu_times()[:2]) - busy,
                }
            )
            print(json.dumps(rounds[-1]), flush=True)
    finally:
        await source.close()
    counted = rounds[1:]  # round 0 warms up
    ratios = sorted(
        (each["environment_s"] / each["environment_turns"]) / (each["loop_s"] / each["loop_turns"])
        for each in counted
    )
    shares = [each["host_cpu_s"] / each["environment_s"] for each in counted]
    return {
        "samples": len(secrets),
        "ratio_per_turn": [round(x, 1) for x in (statistics.median(ratios), ratios[0], ratios[-1])],
        "host_cpu_share_of_wall": round(statistics.median(shares), 2),
        "rounds": [{name: round(x, 3) for name, x in each.items()} for each in counted],
    }


def main() -> None:
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--agents", required=True, help="python that has verifiers")
    parser.add_argument("--model", default=".models/tiny-arith")
    parser.add_argument("--prompts", type=int, default=48)
    parser.add_argument("--n", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()

    from rmrl.inference.environment import engine_environment

    os.environ.update(engine_environment(device="cpu", threads=args.threads))
    print_and_write(asyncio.run(measure(args)), args.out)


if __name__ == "__main__":
    main()
