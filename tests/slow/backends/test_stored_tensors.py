"""Mixtures of experts leave training under the names of their checkpoints, with the bias that
chooses experts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from rmrl.backends.export import export
from rmrl.errors import CheckpointError
from tests.backends.policies import engine, make_batch, make_settings, write_policy
from tests.models.test_stored_tensors import model_of

pytestmark = pytest.mark.usefixtures("_leaves_group")


@pytest.mark.parametrize("family", ["mixtral", "glm4_moe"])
def test_names_and_buffers_are_those_of_the_checkpoint(family: str, tmp_path: Path) -> None:
    model_of(family).save_pretrained(tmp_path / "policy")
    AutoTokenizer.from_pretrained(write_policy(tmp_path / "llama")).save_pretrained(
        tmp_path / "policy"
    )
    before = load_file(tmp_path / "policy" / "model.safetensors")
    settings = make_settings(tmp_path / "policy", use_kl_loss=False)
    settings.trained.checkpoint.save_contents = ["model"]
    trained = engine(settings)
    batch = make_batch(4, seed=1)
    batch.tokens.values[:] %= 64
    trained.update([batch])
    trained.save(str(tmp_path / "saved"))
    weights = dict(trained.weights())
    assert weights.keys() == before.keys()
    stated = {name: (dtype, shape) for name, dtype, shape in trained.manifest()}
    assert stated == {n: (t.dtype, tuple(t.shape)) for n, t in weights.items()}
    moved = [name for name, tensor in weights.items() if not torch.equal(tensor, before[name])]
    assert any("experts" in name for name in moved)
    bias = [name for name in before if name.endswith("e_score_correction_bias")]
    assert len(bias) == (family == "glm4_moe")
    assert not set(bias) & set(moved)

    export(tmp_path / "saved", tmp_path / "out", dtype="bfloat16")
    written = load_file(tmp_path / "out" / "model.safetensors")
    assert written.keys() == before.keys()
    for name, tensor in written.items():
        assert torch.equal(tensor, weights[name] if name in bias else weights[name].bfloat16())

    if bias:
        rest = {name: tensor for name, tensor in before.items() if name not in bias}
        save_file(rest, tmp_path / "policy" / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(CheckpointError, match=f"lacks '{bias[0]}'"):
            export(tmp_path / "saved", tmp_path / "again", dtype="bfloat16")
