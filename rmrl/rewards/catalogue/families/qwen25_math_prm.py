"""Qwen2.5-Math-PRM: scores the steps of a solution at a marker behind each."""

from __future__ import annotations

from typing import Any

from rmrl.rewards.catalogue.card import Card, Licence

CARD = Card(
    title="Qwen2.5-Math-PRM",
    models={
        "qwen2.5-math-prm-7b": "Qwen/Qwen2.5-Math-PRM-7B",
        "qwen2.5-math-prm-72b": "Qwen/Qwen2.5-Math-PRM-72B",
    },
    licence=Licence(
        "Qwen License",
        "above 100 million monthly users it asks for a licence from Alibaba Cloud",
    ),
    reads=(
        "the steps between blank lines, <extra_0> behind each; a step's score is the softmax share"
        " of label 1 at that marker. vLLM has its two-layer head; reward.engine.name=hf needs the"
        " checkpoint's own code: trainer.trust_remote_code=true (in training"
        " actor_rollout_ref.model.trust_remote_code=true), if you trust it"
    ),
    paper="https://arxiv.org/abs/2501.07301",
    source="https://huggingface.co/Qwen/Qwen2.5-Math-PRM-7B",
    tried=(
        "the entries; the head is tested on vLLM with random weights of its shape, these weights"
        " were not run. The card's example has the system prompt 'Please reason step by step, and"
        " put your final answer within \\boxed{}.'; give it in the rm_prompt where the chat"
        " template has another"
    ),
)
SPEC: dict[str, Any] = {
    "kind": "process",
    "separator": "\n\n",
    "step_token": "<extra_0>",
    "positive_label": 1,
}
