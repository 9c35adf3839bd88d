"""Checks of what a job exported: Hugging Face folders of its policy and of its critic."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from safetensors.torch import load_file

from tests.trainer.job import Job


def greedy_is_that_of_the_export(job: Job, out: str, *, step: int) -> None:
    """Validation at `step` was sampled by vLLM from published weights; transformers writes the same
    from the exported ones."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    hf = job.folder / out / "checkpoints" / f"step_{step:06d}" / "hf"
    model = AutoModelForCausalLM.from_pretrained(hf, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(hf)
    samples = [row for row in job.lines(out, "val_samples.jsonl") if row["step"] == step]
    assert len(samples) == 16
    for row in samples[:8]:
        text = tokenizer.apply_chat_template(
            row["messages"], tokenize=False, add_generation_prompt=True
        )
        ids = tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids
        with torch.no_grad():
            tokens = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False
            )[0, ids.shape[1] :]
        assert tokenizer.decode(tokens, skip_special_tokens=True) == row["response"]


def the_policy_moved(hf: Path, start: Path) -> None:
    """Its export has the names and shapes of the model it began as, and other numbers."""
    before = load_file(start / "model.safetensors")
    after = load_file(hf / "model.safetensors")
    assert after.keys() == before.keys()
    changed = 0
    for name, tensor in before.items():
        assert after[name].shape == tensor.shape
        changed += not torch.equal(after[name].float(), tensor.float())
    assert changed > 0


def a_critic_that_scores(folder: Path) -> None:
    """A model of one label for transformers; of adapters it knows nothing."""
    from transformers import AutoModelForSequenceClassification

    model, keys = AutoModelForSequenceClassification.from_pretrained(
        folder, output_loading_info=True
    )
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not keys[kind]
    assert model(input_ids=torch.tensor([[1, 2, 3]])).logits.shape == (1, 1)


def every_number_is_finite(metrics: dict[str, object]) -> None:
    for key, value in metrics.items():
        assert not isinstance(value, float) or math.isfinite(value), key
