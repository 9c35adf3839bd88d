"""What is read of an adapter before anything is loaded, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmrl.errors import ConfigError
from rmrl.models.adapter_inspect import check_fits, local_adapter, read_adapter, slot_bytes
from tests.engine_models import write_adapter, write_llama, write_llama_scorer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapters")
    write_llama(folder / "base")
    write_llama_scorer(folder / "scorer")
    write_adapter(folder / "lora", folder / "base", rank=4)
    write_adapter(folder / "head", folder / "scorer", rank=2)
    return folder


def changed(folder: Path, tmp_path: Path, **entries: Any) -> Path:
    """A copy of the adapter `lora` with other entries in its configuration."""
    copy = tmp_path / "copy"
    shutil.copytree(folder / "lora", copy)
    file = copy / "adapter_config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps(config | entries), encoding="utf-8")
    return copy


def test_rank_base_and_bytes(folder: Path) -> None:
    adapter = read_adapter(folder / "lora")
    assert (adapter.rank, adapter.base, adapter.full_modules) == (4, str(folder / "base"), ())
    # two layers, rank 4, float32: q 128 -> 128, v 128 -> 64, down 256 -> 128
    assert adapter.bytes == 2 * 4 * 4 * ((128 + 128) + (128 + 64) + (256 + 128))
    assert "score" in read_adapter(folder / "head").full_modules


def test_the_largest_rank_counts(folder: Path, tmp_path: Path) -> None:
    assert read_adapter(changed(folder, tmp_path, rank_pattern={"q_proj": 24})).rank == 24


def test_a_slot_holds_a_and_b_beside_every_matrix(folder: Path) -> None:
    per_layer = (128 + 128) + 2 * (128 + 64) + (128 + 128) + 3 * (128 + 256)
    embeddings = 2 * (1024 + 128)  # tied: input and output both
    expected = 8 * 2 * (2 * per_layer + embeddings)
    assert slot_bytes(str(folder / "base"), rank=8, element_bytes=2) == expected


def test_it_fits_its_base_and_a_copy_of_another_name_is_a_warning(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    base = str(folder / "base")
    adapter = read_adapter(folder / "lora")
    check_fits(adapter, base, named=base, where="x")
    assert not caplog.messages
    copy = str(shutil.copytree(folder / "base", tmp_path / "renamed"))
    check_fits(adapter, copy, named=copy, where="x")
    assert "names its base" in caplog.messages[0]


def test_another_model_is_refused_by_shape_by_layers_and_by_id(
    folder: Path, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaForCausalLM

    from tests.engine_models import llama_config

    adapter = read_adapter(folder / "lora")
    config = llama_config()
    config.hidden_size = 64
    LlamaForCausalLM(config).save_pretrained(tmp_path / "narrow")
    with pytest.raises(ConfigError, match=r"layers.0.mlp.down_proj.lora_B.* shape \[128, 4\]"):
        check_fits(adapter, str(tmp_path / "narrow"), named="narrow", where="x")
    other = GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=1, n_head=2)
    GPT2LMHeadModel(other).save_pretrained(tmp_path / "gpt")
    with pytest.raises(ConfigError, match="'gpt' has none of the layers that it changes"):
        check_fits(adapter, str(tmp_path / "gpt"), named="gpt", where="x")
    AutoModelForCausalLM.from_pretrained(folder / "base").save_pretrained(tmp_path / "same")
    named = read_adapter(changed(folder, tmp_path, base_model_name_or_path="org/model-a"))
    with pytest.raises(ConfigError, match="it was trained on org/model-a, and path is org/model-b"):
        check_fits(named, str(tmp_path / "same"), named="org/model-b", where="x")
    check_fits(named, str(tmp_path / "same"), named="Org/Model_A", where="x")


def test_only_safetensors_are_read(folder: Path, tmp_path: Path) -> None:
    copy = changed(folder, tmp_path)
    (copy / "adapter_model.safetensors").rename(copy / "adapter_model.bin")
    with pytest.raises(ConfigError, match="refused: save the adapter with peft's save_pretrained"):
        local_adapter(copy)


def test_no_folder_no_configuration_and_a_torn_file(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a folder; give the folder of a LoRA"):
        local_adapter(tmp_path / "nothing")
    with pytest.raises(ConfigError, match=r"holds no adapter_config.json"):
        local_adapter(folder / "base")
    copy = changed(folder, tmp_path)
    file = copy / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(ConfigError, match="is torn"):
        read_adapter(copy)


@pytest.mark.parametrize(
    ("entries", "sentence"),
    [
        ({"peft_type": "IA3"}, "peft_type=IA3, and only LORA"),
        ({"init_lora_weights": "pissa"}, "changes the base model itself"),
        ({"layer_replication": [[0, 1]]}, r"changes the base model itself \(layer_replication\)"),
        ({"r": "many"}, "is no adapter configuration"),
    ],
)
def test_what_is_no_plain_lora_is_refused(
    folder: Path, tmp_path: Path, entries: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        read_adapter(changed(folder, tmp_path, **entries))
