"""Skywork-Reward-V2: Bradley-Terry models of eight sizes."""

from __future__ import annotations

from typing import Any

from rmrl.rewards.catalogue.card import LLAMA, Card, Licence

_LLAMA_31 = Licence("Llama 3.1 Community License (of its base model)", LLAMA)
_LLAMA_32 = Licence("Llama 3.2 Community License (of its base model)", LLAMA)

CARD = Card(
    title="Skywork-Reward-V2",
    models={
        "skywork-reward-v2-qwen3-0.6b": "Skywork/Skywork-Reward-V2-Qwen3-0.6B",
        "skywork-reward-v2-qwen3-1.7b": "Skywork/Skywork-Reward-V2-Qwen3-1.7B",
        "skywork-reward-v2-qwen3-4b": "Skywork/Skywork-Reward-V2-Qwen3-4B",
        "skywork-reward-v2-qwen3-8b": "Skywork/Skywork-Reward-V2-Qwen3-8B",
        "skywork-reward-v2-llama-3.2-1b": "Skywork/Skywork-Reward-V2-Llama-3.2-1B",
        "skywork-reward-v2-llama-3.2-3b": "Skywork/Skywork-Reward-V2-Llama-3.2-3B",
        "skywork-reward-v2-llama-3.1-8b": "Skywork/Skywork-Reward-V2-Llama-3.1-8B",
        "skywork-reward-v2-llama-3.1-8b-40m": "Skywork/Skywork-Reward-V2-Llama-3.1-8B-40M",
    },
    licence=Licence("Apache-2.0"),
    licences={
        "skywork-reward-v2-llama-3.2-1b": _LLAMA_32,
        "skywork-reward-v2-llama-3.2-3b": _LLAMA_32,
        "skywork-reward-v2-llama-3.1-8b": _LLAMA_31,
        "skywork-reward-v2-llama-3.1-8b-40m": _LLAMA_31,
    },
    reads=(
        "the last user turn, or the row's rm_prompt where it has one, and the response through the"
        " tokenizer's own chat template; the score is the raw logit of one label, on no fixed scale"
    ),
    paper="https://arxiv.org/abs/2507.01352",
    source="https://huggingface.co/Skywork/Skywork-Reward-V2-Qwen3-8B",
    tried=(
        "the entries; the path of scalar heads is tested with other weights, these were not run"
    ),
)
SPEC: dict[str, Any] = {"kind": "bradley_terry"}
