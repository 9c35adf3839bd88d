"""The value model against transformers' classifier of the same weights, and what it is loaded
from."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import LlamaForSequenceClassification

from rmrl.config.schema import ModelConfig
from rmrl.errors import CheckpointError, ConfigError
from rmrl.models.token_values import ValueModel, load_value_model, value_config
from tests.engine_models import llama_config, write_headless_scorer


def load(folder: Path) -> torch.nn.Module:
    return load_value_model(ModelConfig(path=str(folder)), dtype=torch.float32)


def test_a_causal_model_gets_a_head_of_zeros(tiny_llama: Path):
    model = load(tiny_llama)
    assert model.score.weight.shape == (1, 128)
    assert not model.score.weight.any()
    assert ValueModel(model)(torch.tensor([[5, 6, 7]]), torch.tensor([0, 1])).tolist() == [0.0, 0.0]
    assert model.is_gradient_checkpointing
    assert not model.config.use_cache


def test_a_head_of_zeros_learns(tiny_llama: Path):
    """d loss / d head = error x hidden state, which is not zero."""
    model = ValueModel(load(tiny_llama))
    (model(torch.tensor([[5, 6, 7]]), torch.tensor([1])) - 1.0).square().sum().backward()
    assert model.model.score.weight.grad.abs().sum() > 0


def test_a_reward_models_head_is_kept(tiny_reward_llama: Path):
    reward_model = LlamaForSequenceClassification.from_pretrained(tiny_reward_llama)
    row = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        got = ValueModel(load(tiny_reward_llama))(row, torch.tensor([3]))
        expected = reward_model(row).logits[0, 0]
    assert got.item() == pytest.approx(expected.item(), abs=1e-6)
    assert abs(got.item()) > 0.1


def test_padded_rows_equal_each_row_alone(tiny_reward_llama: Path):
    model = ValueModel(load(tiny_reward_llama)).eval()
    rows = [torch.randint(3, 1000, (n,)) for n in (9, 5)]
    padded = torch.zeros(2, 9, dtype=torch.long)
    padded[0], padded[1, :5] = rows[0], rows[1]
    with torch.no_grad():
        got = model(padded, torch.tensor([5, 6, 7, 9 + 2, 9 + 3]))
        alone = torch.cat(
            [
                model(rows[0][None], torch.tensor([5, 6, 7])),
                model(rows[1][None], torch.tensor([2, 3])),
            ]
        )
    torch.testing.assert_close(got, alone, atol=1e-5, rtol=0)


def test_values_are_float32_whatever_the_weights_are(tiny_reward_llama: Path):
    model = ValueModel(
        load_value_model(ModelConfig(path=str(tiny_reward_llama)), dtype=torch.bfloat16)
    )
    assert model(torch.tensor([[5, 6, 7]]), torch.tensor([1])).dtype is torch.float32


def test_a_classifier_of_several_labels_is_refused(tmp_path: Path):
    config = llama_config()
    config.num_labels = 3
    LlamaForSequenceClassification(config).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="this classifier has 3 labels, a value is one number"):
        value_config(ModelConfig(path=str(tmp_path)))


def test_a_reward_model_without_its_head_is_refused(tmp_path: Path):
    with pytest.raises(CheckpointError, match=r"lacks 1 weights .*score\.weight"):
        load(write_headless_scorer(tmp_path))


def test_an_encoder_is_refused(tmp_path: Path):
    from tests.engine_models import write_bert_scorer

    with pytest.raises(ConfigError, match="type 'bert' have no scalar head 'score' on a decoder"):
        load(write_bert_scorer(tmp_path))


def test_an_encoder_without_a_head_is_refused_for_its_family(tmp_path: Path):
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    BertModel(BertConfig(vocab_size=32, intermediate_size=16, **sizes)).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="type 'bert' have no scalar head 'score' on a decoder"):
        load(tmp_path)
