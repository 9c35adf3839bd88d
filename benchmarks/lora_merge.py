"""Do merged LoRA weights sample from the policy that was trained?

    python -m benchmarks.lora_merge --out benchmarks/results/lora_merge.json

A LoRA learns to continue GSM8K solutions, from ../shared/data (its README names sources and
licences). After some steps its adapters are merged into weights in bfloat16, as rollout engines and
exports get them: rounded stochastically, as rmrl does, and to the nearest value. Both are compared
with the adapters beside their weights on texts that are held out, everything else in float32.

    moved       KL(trained || start), nats per token: how far training has come
    kl          KL(trained || merged)
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from rmrl.config.schema import ModelConfig
from rmrl.models.lora import add_adapters, is_adapter, merged_parameters

ROOT = Path(__file__).resolve().parent.parent
TEXTS = ROOT.parent / "shared" / "data" / "math" / "gsm8k_train.jsonl"
HELD_OUT = 12
ROWS = 4


def texts(tokenizer: Any, length: int, most: int = 300) -> Tensor:
    """Return texts that have `length` tokens or more, cut to these, [N, length]."""
    rows: list[list[int]] = []
    for line in TEXTS.read_text(encoding="utf-8").splitlines()[:most]:
        row = json.loads(line)
        ids = tokenizer(f"{row['question']}\n{row['solution']}").input_ids
        if len(ids) >= length:
            rows.append(ids[:length])
    return torch.tensor(rows)


@torch.no_grad()
def logprobs(model: Any, ids: Tensor) -> Tensor:
    """Return log-probabilities of all tokens at every place."""
    return torch.log_softmax(model.eval()(ids).logits, -1)


def kl(of: Tensor, other: Tensor) -> float:
    """Return the mean over places."""
    return (of.exp() * (of - other)).sum(-1).mean().item()


def merged(model: Any, lora: ModelConfig, dtype: torch.dtype) -> dict[str, Tensor]:
    """Return the weights in bfloat16's values: merged in `dtype`, float32 ones to the nearest."""
    tensors = dict(model.named_parameters())
    weights = merged_parameters(tensors, lora, gather=Tensor.detach, dtype=dtype)
    return {name: tensor.bfloat16().float() for name, tensor in weights}


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Train, and compare after each number of steps."""
    torch.manual_seed(settings.seed)
    torch.set_num_threads(settings.threads)
    ids = texts(AutoTokenizer.from_pretrained(settings.model), settings.length)
    held_out, rows = ids[:HELD_OUT], ids[HELD_OUT:]
    lora = ModelConfig(path=settings.model, lora_rank=settings.rank, lora_alpha=settings.rank)
    plain: Any = AutoModelForCausalLM.from_pretrained(settings.model, dtype=torch.float32)
    base = AutoModelForCausalLM.from_pretrained(settings.model, dtype=torch.float32)
    model: Any = add_adapters(base, lora, seed=settings.seed)
    adapters = [each for name, each in model.named_parameters() if is_adapter(name)]
    optimizer = torch.optim.AdamW(adapters, lr=settings.lr, weight_decay=0.0)
    start = logprobs(plain, held_out)
    points: list[dict[str, Any]] = []
    for step in range(1, max(settings.steps) + 1):
        first = (step - 1) * ROWS % (len(rows) - ROWS)
        batch = rows[first : first + ROWS]
        model.train()(batch, labels=batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step not in settings.steps:
            continue
        trained = logprobs(model, held_out)
        figures = {"moved": kl(trained, start)}
        for name, dtype in (("stochastic", torch.bfloat16), ("nearest", torch.float32)):
            plain.load_state_dict(merged(model, lora, dtype), strict=False)
            figures[f"kl_{name}"] = kl(trained, logprobs(plain, held_out))
        rounded = {name: float(f"{value:.3g}") for name, value in figures.items()}
        points.append({"step": step, **rounded})
        print(points[-1], flush=True)
    return points


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=str(ROOT / ".models" / "smollm2"))
    parser.add_argument("--steps", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    settings = parser.parse_args()
    result = {
        "command": " ".join(["python -m benchmarks.lora_merge", *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%d"),
        "model": Path(settings.model).name,
        "points": measure(settings),
    }
    settings.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
