"""What FSDP2 costs a training of one process: forward and backward of the same micro-batch through
the plain model and through `fully_shard`, a unit for each decoder layer and one for the rest.

    python -m benchmarks.one_process --out benchmarks/results/one_process.json

With one process nothing is sent, and still torch copies each layer's parameters into a buffer before
they are used, and the gradients back. rmrl leaves the model as it is there, unless the copy is the
cast of `param_dtype`.
The sides take turns in one process. A ratio is FSDP2's seconds / the plain model's of the same
round: median [smallest, largest].
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from rmrl.backends.fsdp.layout import decoder_layers
from rmrl.config.schema import ModelConfig
from rmrl.models.loading import load_causal_lm


def main() -> None:
    """Measure, print a line per round and write the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default=".models/smollm2")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=128, help="of a row")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--passes", type=int, default=2, help="of a side in a round")
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args()
    print(f"load of the machine: {os.getloadavg()}", file=sys.stderr)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        model = ModelConfig(path=given.model)
        sides: dict[str, nn.Module] = {"plain": load_causal_lm(model, dtype=torch.float32)}
        sharded = load_causal_lm(model, dtype=torch.float32)
        for layer in decoder_layers(sharded):
            fully_shard(layer, mesh=mesh)
        sides["fsdp2"] = fully_shard(sharded, mesh=mesh, reshard_after_forward=False)
        ids = torch.randint(0, 1000, (given.rows, given.tokens))
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        for side in sides.values():
            run(side, ids)
        for number in range(given.rounds):
            order = list(sides) if number % 2 else list(reversed(sides))
            for name in order:
                passes = [run(sides[name], ids) for _ in range(given.passes)]
                seconds[name].append(round(sum(passes), 3))
            print({name: measured[-1] for name, measured in seconds.items()}, file=sys.stderr)
    finally:
        dist.destroy_process_group()
    ratios = [ours / plain for ours, plain in zip(seconds["fsdp2"], seconds["plain"], strict=True)]
    result = {
        "command": f"python -m benchmarks.one_process --rows {given.rows} --tokens {given.tokens}"
        f" --rounds {given.rounds} --passes {given.passes}",
        "model": Path(given.model).name,
        "torch": torch.__version__,
        "seconds": seconds,
        "fsdp2_over_plain": round(statistics.median(ratios), 3),
        "by_round": [round(ratio, 3) for ratio in ratios],
    }
    print(json.dumps(result, indent=1))
    if given.out is not None:
        given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def run(model: nn.Module, ids: Tensor) -> float:
    """Seconds of a forward and a backward pass, the logits of the last 16 positions alone."""
    model.zero_grad(set_to_none=True)
    started = time.perf_counter()
    logits = model(input_ids=ids, use_cache=False, logits_to_keep=16).logits
    logits.logsumexp(-1).mean().backward()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
