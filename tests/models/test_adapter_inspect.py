"""What is read of an adapter before anything is loaded, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from rmrl.errors import ConfigError
from rmrl.models.adapter_inspect import (
    check_fits,
    check_task,
    local_adapter,
    read_adapter,
    slot_bytes,
)
from rmrl.models.checkpoint_inspect import check_scalar_head
from tests.engine_models import llama_config, write_adapter, write_llama, write_llama_scorer


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

    adapter = read_adapter(folder / "lora")
    config = llama_config()
    config.hidden_size = 64
    LlamaForCausalLM(config).save_pretrained(tmp_path / "narrow")
    with pytest.raises(ConfigError, match=r"layers.0.mlp.down_proj.lora_B.* shape \[128, 4\]"):
        check_fits(adapter, str(tmp_path / "narrow"), named="narrow", where="x")
    other = GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=1, n_head=2)
    GPT2LMHeadModel(other).save_pretrained(tmp_path / "gpt")
    with pytest.raises(ConfigError, match="12 of its 12 tensors have no layer in 'gpt'"):
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
        ({"bias": "all"}, "bias=all: loading it overwrites biases of the base model"),
        ({"bias": "lora_only"}, "bias=lora_only: loading it overwrites biases"),
        ({"r": "many"}, "is no adapter configuration"),
    ],
)
def test_what_is_no_plain_lora_is_refused(
    folder: Path, tmp_path: Path, entries: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence) as caught:
        read_adapter(changed(folder, tmp_path, **entries))
    assert ("copy the adapter again" in str(caught.value)) == ("r" in entries)


def test_layers_that_the_base_does_not_have_are_refused(folder: Path, tmp_path: Path) -> None:
    """An adapter of four layers on a base of two: 3 matrices x A and B x 2 layers too many."""
    from transformers import LlamaForCausalLM

    config = llama_config()
    config.num_hidden_layers = 4
    LlamaForCausalLM(config).save_pretrained(tmp_path / "deep")
    adapter = read_adapter(write_adapter(tmp_path / "four", tmp_path / "deep"))
    check_fits(adapter, str(tmp_path / "deep"), named="deep", where="x")
    first = r"first is base_model.model.model.layers.2.mlp.down_proj.lora_A.weight"
    with pytest.raises(ConfigError, match=rf"12 of its 24 tensors have no layer in 'two'.*{first}"):
        check_fits(adapter, str(folder / "base"), named="two", where="x")


def test_a_head_without_a_task_type_has_no_place_in_a_language_model(
    folder: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder / "head", copy)
    file = copy / "adapter_config.json"
    entries = json.loads(file.read_text(encoding="utf-8")) | {"task_type": None}
    file.write_text(json.dumps(entries), encoding="utf-8")
    adapter = read_adapter(copy)
    check_task(adapter, str(folder / "base"), runner="generate", where="x")
    with pytest.raises(ConfigError, match=r"1 of its 13 tensors have no layer.*model.score.weight"):
        check_fits(adapter, str(folder / "base"), named="base", where="x")
    check_fits(adapter, str(folder / "scorer"), named="scorer", where="x")


@pytest.mark.parametrize("rest", ["lm_head.weight", "lm_head.lora_B.weight"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_tied_output_embedding_is_not_stored(
    folder: Path, tmp_path: Path, rest: str, tied: bool
) -> None:
    base = shutil.copytree(folder / "base", tmp_path / "base")
    config = json.loads((base / "config.json").read_text(encoding="utf-8"))
    assert config["tie_word_embeddings"] is True
    (base / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": tied}))
    adapter = read_adapter(folder / "lora")
    tensor = dataclasses.replace(adapter.tensors[0], name=f"base_model.model.{rest}", shape=(8,))
    adapter = dataclasses.replace(adapter, tensors=(*adapter.tensors, tensor))
    if tied:
        check_fits(adapter, str(base), named="base", where="x")
        return
    with pytest.raises(ConfigError, match=r"1 of its 13 tensors have no layer"):
        check_fits(adapter, str(base), named="base", where="x")


@pytest.mark.parametrize("method", ["awq", "bitsandbytes"])
def test_of_a_quantised_base_the_names_are_compared(
    folder: Path, tmp_path: Path, method: str
) -> None:
    """Its matrices are packed: 8 numbers of 4 bits in an I32 (AWQ), 2 in a byte of one column."""
    tensors: dict[str, torch.Tensor] = {}
    for name, tensor in load_file(folder / "base" / "model.safetensors").items():
        if not name.endswith("_proj.weight"):
            tensors[name] = tensor
        elif method == "awq":
            rows, columns = tensor.shape
            packed = torch.zeros(columns, rows // 8, dtype=torch.int32)
            tensors[f"{name.removesuffix('weight')}qweight"] = packed
            tensors[f"{name.removesuffix('weight')}scales"] = torch.zeros(1, rows)
        else:
            tensors[name] = torch.zeros(tensor.numel() // 2, 1, dtype=torch.uint8)
            tensors[f"{name}.absmax"] = torch.zeros(tensor.numel() // 64, dtype=torch.uint8)
    base = tmp_path / "packed"
    base.mkdir()
    save_file(tensors, base / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "base" / "config.json").read_text(encoding="utf-8"))
    config["quantization_config"] = {"quant_method": method}
    (base / "config.json").write_text(json.dumps(config), encoding="utf-8")
    adapter = read_adapter(folder / "lora")
    check_fits(adapter, str(base), named="packed", where="x")
    foreign = dataclasses.replace(
        adapter.tensors[0], name="base_model.model.h.0.attn.lora_A.weight"
    )
    with pytest.raises(ConfigError, match="1 of its 1 tensors have no layer in 'packed'"):
        check_fits(
            dataclasses.replace(adapter, tensors=(foreign,)), str(base), named="packed", where="x"
        )
    # the slots are enough for the matrices as they are, and of their size
    plain = slot_bytes(str(folder / "base"), rank=8, element_bytes=2)
    assert plain <= slot_bytes(str(base), rank=8, element_bytes=2) <= 2 * plain


@pytest.mark.parametrize(
    ("task", "runner", "model", "sentence"),
    [
        ("SEQ_CLS", "generate", "base", "trained with a head .task_type=SEQ_CLS.*merge the two"),
        ("SEQ_CLS", "pooling", "base", "is a LlamaForCausalLM, which has no place for one"),
        ("CAUSAL_LM", "pooling", "scorer", "reads a head of its model, which takes SEQ_CLS or TOK"),
        ("FEATURE_EXTRACTION", "generate", "base", "has its model write, which takes CAUSAL_LM;"),
        ("SEQ_CLS", "pooling", "scorer", ""),
        ("SEQ_CLS", "token_pooling", "scorer", ""),
        ("CAUSAL_LM", "generate", "base", ""),
        (None, "generate", "base", ""),
        (None, "pooling", "scorer", ""),
    ],
)
def test_the_task_that_it_was_trained_for(
    folder: Path, tmp_path: Path, task: str | None, runner: str, model: str, sentence: str
) -> None:
    adapter = read_adapter(changed(folder, tmp_path, task_type=task))
    if not sentence:
        check_task(adapter, str(folder / model), runner=runner, where="x")
        return
    with pytest.raises(ConfigError, match=sentence):
        check_task(adapter, str(folder / model), runner=runner, where="x")


def test_the_merge_that_the_refusal_names_makes_a_reward_model(
    folder: Path, tmp_path: Path
) -> None:
    """A reward LoRA trained on a language model, merged as the sentence says."""
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import AutoModelForSequenceClassification

    def fresh() -> Any:
        return AutoModelForSequenceClassification.from_pretrained(folder / "base", num_labels=1)

    config = LoraConfig(r=2, target_modules=["v_proj"], task_type="SEQ_CLS")
    get_peft_model(fresh(), config).save_pretrained(tmp_path / "reward")
    with pytest.raises(ConfigError, match="merge the two"):
        check_task(
            read_adapter(tmp_path / "reward"), str(folder / "base"), runner="pooling", where="x"
        )
    merged = PeftModel.from_pretrained(fresh(), str(tmp_path / "reward"))
    merged.merge_and_unload().save_pretrained(tmp_path / "merged")
    check_scalar_head(tmp_path / "merged")
    head = load_file(tmp_path / "merged" / "model.safetensors")["score.weight"]
    stored = load_file(tmp_path / "reward" / "adapter_model.safetensors")
    assert torch.equal(head, stored["base_model.model.score.weight"])
