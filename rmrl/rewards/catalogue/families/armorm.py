"""ArmoRM: 19 attributes, summed by a gating network of the checkpoint's own code."""

from __future__ import annotations

from typing import Any

from rmrl.rewards.catalogue.card import LLAMA, Card, Licence

CARD = Card(
    title="ArmoRM",
    models={"armorm-llama3-8b": "RLHFlow/ArmoRM-Llama3-8B-v0.1"},
    licence=Licence("Llama 3 Community License", LLAMA),
    reads=(
        "the last user turn, or the row's rm_prompt where it has one, and the response through its"
        " chat template; the score is the gated sum of its attributes,"
        " which themselves are not shown. On transformers alone, a row at a time, since its code"
        " finds the last token by the pad token; vLLM does not have its class"
    ),
    paper="https://arxiv.org/abs/2406.12845",
    source="https://huggingface.co/RLHFlow/ArmoRM-Llama3-8B-v0.1; RewardBench's copy of its code",
    tried=(
        "the entries, with a small model of random weights and code of its form; its own weights"
        " and code were not run"
    ),
    remote_code=True,
)
SPEC: dict[str, Any] = {
    "kind": "bradley_terry",
    "engine": {"name": "hf", "batch_invariant": True},
}
