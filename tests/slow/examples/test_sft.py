"""TRL's trainer runs the SFT example on a tiny model."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from tests.examples.test_sft import rows_of, sft

__all__ = ["sft"]


def test_the_loss_falls_and_the_folder_loads(
    sft: ModuleType, tiny_llama: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    pytest.importorskip("trl")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path = rows_of(tmp_path / "train.parquet", *({"answer": "two"} for _ in range(64)))
    out = tmp_path / "sft"
    options = ["--batch", "4", "--lr", "3e-3", "--epochs", "2"]
    assert (
        sft.main(["--model", str(tiny_llama), "--data", str(path), "--out", str(out), *options])
        == 0
    )
    assert "64 examples" in capfd.readouterr().out
    assert sorted(p.name for p in out.iterdir() if p.name in ("config.json", "model.safetensors", "tokenizer.json")) == [
        "config.json", "model.safetensors", "tokenizer.json",
    ]  # fmt: skip
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert tokenizer.chat_template
    asked = tokenizer.apply_chat_template(
        [{"role": "user", "content": "question 1"}], add_generation_prompt=True, return_dict=False
    )
    wanted = tokenizer("two", add_special_tokens=False)["input_ids"]
    for folder, likely in ((tiny_llama, False), (out, True)):
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        with torch.no_grad():
            probability = model(torch.tensor([asked])).logits[0, -1].softmax(-1)[wanted[0]].item()
        assert (probability > 0.5) is likely
