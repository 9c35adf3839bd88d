"""How much of an update a policy shows that computes in bfloat16 with float32 master weights.

    python -m benchmarks.bfloat16_updates --model .models/smollm2

A checkpoint that is stored in bfloat16 lies on that type's grid. A master weight that moves by less
than half the distance between two numbers is rounded back, so that the weights that compute stay
what they were until several updates add up. The same steps of AdamW are taken with both types, on
sampled responses with random advantages. Reported per step: KL(start || now) of the policy as it
computes, and as its float32 master weights would.
"""

from __future__ import annotations

import argparse
import copy
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

PROMPT, RESPONSE = 30, 20
"""Tokens; prompts are random ones."""


def logprobs(model: Any, ids_BS: Tensor, dtype: torch.dtype) -> Tensor:
    """Log-probabilities of every token at each place of the responses, with weights cast to
    `dtype`, [B, T, V]."""
    weights = {name: weight.to(dtype) for name, weight in model.named_parameters()}
    logits = torch.func.functional_call(model, weights, (ids_BS,)).logits
    return torch.log_softmax(logits[:, PROMPT - 1 : -1].float(), dim=-1)


@torch.no_grad()
def moved(start_BTV: Tensor, model: Any, ids_BS: Tensor, dtype: torch.dtype) -> float:
    """KL from the start, in nats a token."""
    now_BTV = logprobs(model, ids_BS, dtype)
    return float((start_BTV.exp() * (start_BTV - now_BTV)).sum(-1).mean())


def steps(
    first: Any, ids_BS: Tensor, dtype: torch.dtype, *, count: int, lr: float
) -> list[dict[str, float]]:
    """Train a copy, and say after each step how far it is from the start."""
    model = copy.deepcopy(first).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)
    advantages_B1 = torch.randn(len(ids_BS), 1, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        start_BTV = logprobs(model, ids_BS, dtype)
        masters_BTV = logprobs(model, ids_BS, torch.float32)
    curve: list[dict[str, float]] = []
    for _ in range(count):
        every_BTV = logprobs(model, ids_BS, dtype)
        chosen_BT = every_BTV.gather(-1, ids_BS[:, PROMPT:, None])[..., 0]
        (-(advantages_B1 * chosen_BT).mean()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        curve.append(
            {
                "kl": round(moved(start_BTV, model, ids_BS, dtype), 5),
                "kl_of_masters": round(moved(masters_BTV, model, ids_BS, torch.float32), 5),
            }
        )
    return curve


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=Path(".models/smollm2"))
    parser.add_argument("--responses", type=int, default=12)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--lr", type=float, default=2e-5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--out", type=Path, default=Path("benchmarks/results/bfloat16_updates.json")
    )
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    first: Any = AutoModelForCausalLM.from_pretrained(given.model, dtype=torch.float32).eval()
    prompts = torch.randint(100, first.config.vocab_size - 100, (given.responses, PROMPT))
    ids_BS = first.generate(
        prompts,
        attention_mask=torch.ones_like(prompts),
        min_new_tokens=RESPONSE,
        max_new_tokens=RESPONSE,
        do_sample=True,
        top_k=0,
        pad_token_id=0,
    )
    result: dict[str, Any] = {"model": given.model.name, "lr": given.lr}
    for dtype in (torch.float32, torch.bfloat16):
        name = str(dtype).removeprefix("torch.")
        result[name] = steps(first, ids_BS, dtype, count=given.steps, lr=given.lr)
    text = json.dumps(result, indent=1)
    given.out.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
