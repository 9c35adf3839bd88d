"""What rmrl is measured against: the bare engine and a plain Hugging Face loop, each as a user
would write it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any


class BareVLLM:
    """vllm.LLM and nothing else, with the arguments that rmrl gives its own engine."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        from vllm import LLM

        self._llm = LLM(**arguments)

    def generate(self, token_ids: Sequence[Sequence[int]], sampling: dict[str, Any]) -> float:
        """Seconds for all prompts in one call."""
        from vllm import SamplingParams

        started = time.perf_counter()
        self._llm.generate(
            [{"prompt_token_ids": list(ids)} for ids in token_ids],
            SamplingParams(**sampling),
            use_tqdm=False,
        )
        return time.perf_counter() - started

    def classify(self, token_ids: Sequence[Sequence[int]]) -> float:
        """Seconds for all sequences in one call."""
        started = time.perf_counter()
        self._llm.classify([{"prompt_token_ids": list(ids)} for ids in token_ids], use_tqdm=False)
        return time.perf_counter() - started


class PaddedHuggingFace:
    """AutoModelForSequenceClassification in batches of 32 padded to the longest, in the order
    given."""

    def __init__(self, path: str, dtype: str, threads: int) -> None:
        import torch
        from transformers import AutoModelForSequenceClassification

        torch.set_num_threads(threads)
        self._model = AutoModelForSequenceClassification.from_pretrained(
            path, dtype=getattr(torch, dtype)
        ).eval()

    def classify(self, token_ids: Sequence[Sequence[int]], batch_size: int = 32) -> float:
        """Seconds for all sequences."""
        import torch

        started = time.perf_counter()
        for start in range(0, len(token_ids), batch_size):
            rows = token_ids[start : start + batch_size]
            width = max(map(len, rows))
            ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])
            mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
            with torch.no_grad():
                self._model(input_ids=ids, attention_mask=mask).logits.float().tolist()
        return time.perf_counter() - started
