import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from rmrl.errors import ConfigError, RewardError
from rmrl.models.checkpoint_inspect import (
    check_label_head,
    check_scalar_head,
    check_token_head,
    check_writes_text,
    checkpoint_dtype,
    checkpoint_kind,
    label_count,
    local_checkpoint,
    max_positions,
    parameter_count,
    sentence_settings,
    tensor_headers,
    weight_bytes,
)

SCORER = {
    "architectures": ["LlamaForSequenceClassification"],
    "id2label": {"0": "LABEL_0"},
    "max_position_embeddings": 77,
}


TAGGER = {"architectures": ["LlamaForTokenClassification"], "id2label": {"0": "bad", "1": "good"}}
BERT = {"architectures": ["BertForSequenceClassification"]}
LANGUAGE_MODEL = {"architectures": ["LlamaForCausalLM"], "num_labels": 1}
TWO_LABELS = SCORER | {"id2label": {"0": "a", "1": "b"}}
PROCESS = {"architectures": ["Qwen2ForProcessRewardModel"]}
EMBEDDINGS = {"model.embed.weight": (1, 4)}


def checkpoint(folder: Path, config: dict[str, object], **tensors: torch.Tensor) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return folder


def with_shapes(
    folder: Path, config: dict[str, object], shapes: dict[str, tuple[int, ...]]
) -> Path:
    """Write a checkpoint whose tensors are zeros of these shapes."""
    return checkpoint(folder, config, **{name: torch.zeros(n) for name, n in shapes.items()})


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({"architectures": ["LlamaForSequenceClassification"]}, "bradley_terry"),
        ({"architectures": ["BertForTokenClassification"]}, "bradley_terry"),
        ({"architectures": ["Qwen3ForCausalLM"]}, "generative"),
        ({}, "generative"),
    ],
)
def test_kind(tmp_path: Path, config: dict[str, object], kind: str) -> None:
    assert checkpoint_kind(checkpoint(tmp_path, config)) == kind


@pytest.mark.parametrize(
    ("check", "config", "shapes"),
    [
        (check_scalar_head, SCORER, {"score.weight": (1, 4)}),
        (check_scalar_head, SCORER, {"classifier.weight": (1, 4)}),
        (check_scalar_head, SCORER, {"classifier.out_proj.weight": (1, 4)}),
        (check_label_head, TWO_LABELS, {"score.weight": (2, 4)}),
        (check_token_head, SCORER, {"score.weight": (1, 4)}),
        (check_token_head, TAGGER, {"score.weight": (2, 4)}),
        (
            check_token_head,
            TAGGER | {"architectures": ["BertForTokenClassification"]},
            {"classifier.weight": (2, 4)},
        ),
        (check_token_head, PROCESS, {"score.0.weight": (4, 4), "score.2.weight": (2, 4)}),
        (check_writes_text, {"architectures": ["Qwen3ForCausalLM"]}, {}),
        (check_writes_text, {"architectures": ["GPT2LMHeadModel"]}, {}),
        (check_writes_text, {"architectures": ["ChatGLMModel"], "model_type": "chatglm"}, {}),
        (check_writes_text, {"architectures": ["BertLMHeadModel"], "model_type": "bert"}, {}),
        (check_writes_text, {"model_type": "llama"}, {}),
    ],
)
def test_accepted(tmp_path: Path, check: Any, config: dict[str, object], shapes: Any) -> None:
    check(with_shapes(tmp_path, config, shapes))


@pytest.mark.parametrize(
    ("check", "config", "shapes", "named"),
    [
        (check_scalar_head, SCORER, EMBEDDINGS, r"{folder}.*score\.weight.*trained reward model"),
        (
            check_scalar_head,
            LANGUAGE_MODEL,
            {"lm_head.weight": (8, 4)},
            "LlamaForCausalLM.* kind=generative",
        ),
        (check_scalar_head, SCORER, {"score.weight": (5, 4)}, r"score\.weight \[5, 4\]"),
        (
            check_scalar_head,
            TWO_LABELS,
            {"score.weight": (2, 4)},
            "2 labels.* kind=bradley_terry with label",
        ),
        (check_token_head, TAGGER, EMBEDDINGS, "random"),
        (check_token_head, TAGGER, {"score.weight": (3, 4)}, r"2 .*score\.weight \[3, 4\]"),
        (check_token_head, SCORER | BERT, {"classifier.weight": (1, 4)}, "whole sequence"),
        (check_writes_text, BERT, {}, "kind=bradley_terry"),
        (
            check_writes_text,
            {"architectures": ["BertModel"], "model_type": "bert"},
            {},
            "kind=similarity",
        ),
        (
            check_writes_text,
            {"architectures": ["RobertaForMaskedLM"], "model_type": "roberta"},
            {},
            "kind=similarity",
        ),
        (check_writes_text, {"model_type": "mpnet"}, {}, "kind=similarity"),
    ],
)
def test_refused(
    tmp_path: Path, check: Any, config: dict[str, object], shapes: Any, named: str
) -> None:
    folder = with_shapes(tmp_path, config, shapes)
    with pytest.raises(RewardError, match=named.replace("{folder}", re.escape(str(folder)))):
        check(folder)


def test_a_classifier_as_judge_is_answered_with_what_to_type(tmp_path: Path) -> None:
    folder = with_shapes(tmp_path, SCORER, {})
    with pytest.raises(RewardError, match=r"type reward\.specs\.judge\.kind=bradley_terry, which"):
        check_writes_text(folder, "reward.specs.judge")


def test_labels_are_counted_as_transformers_counts_them() -> None:
    assert label_count({}) == 2
    assert label_count({"num_labels": 1}) == 1
    assert label_count({"id2label": {"0": "a", "1": "b", "2": "c"}}) == 3


def test_sizes(tmp_path: Path) -> None:
    folder = checkpoint(
        tmp_path,
        SCORER,
        a=torch.zeros(3, 4),
        b=torch.zeros(5, dtype=torch.bfloat16),
        ids=torch.zeros(2, dtype=torch.int64),
    )
    assert parameter_count(folder) == 17
    assert weight_bytes(folder, "auto") == 12 * 4 + 5 * 2 + 2 * 8
    assert weight_bytes(folder, "bfloat16") == 17 * 2 + 2 * 8
    assert weight_bytes(folder, "float32") == 17 * 4 + 2 * 8
    with pytest.raises(ConfigError, match="float12"):
        weight_bytes(folder, "float12")


@pytest.mark.parametrize(
    ("config", "positions"),
    [
        (SCORER, 77),
        ({"text_config": {"max_position_embeddings": 9}}, 9),
        ({"model_type": "xlm-roberta", "max_position_embeddings": 514, "pad_token_id": 1}, 512),
    ],
)
def test_positions(tmp_path: Path, config: dict[str, object], positions: int) -> None:
    assert max_positions(checkpoint(tmp_path, config)) == positions


def test_positions_that_are_not_named_have_no_end(tmp_path: Path) -> None:
    assert max_positions(checkpoint(tmp_path, {})) > 10**8


def test_shards_come_from_the_index(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    save_file({"a": torch.zeros(2)}, tmp_path / "model-1.safetensors")
    save_file({"b": torch.zeros(3)}, tmp_path / "model-2.safetensors")
    save_file({"other": torch.zeros(9)}, tmp_path / "leftover.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(
        json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}})
    )
    assert {t.name: t.shape for t in tensor_headers(tmp_path)} == {"a": (2,), "b": (3,)}
    (tmp_path / "model-2.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"model-2\.safetensors"):
        tensor_headers(tmp_path)


def test_torn_files_are_named(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, SCORER, score__weight=torch.zeros(1, 400))
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ConfigError, match="torn"):
        tensor_headers(folder)
    file.write_bytes(b"abc")
    with pytest.raises(ConfigError, match="torn"):
        tensor_headers(folder)


def test_missing_folder_config_and_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ConfigError, match="not a folder"):
        local_checkpoint(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"no config\.json"):
        local_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConfigError, match="not JSON"):
        checkpoint_kind(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"no \*\.safetensors"):
        tensor_headers(tmp_path)
    with pytest.raises(ConfigError, match="could not be fetched"):
        local_checkpoint("nobody-here/no-such-model")


def test_sentence_settings(tmp_path: Path) -> None:
    checkpoint(tmp_path, {})
    assert sentence_settings(tmp_path).max_tokens > 10**9
    assert sentence_settings(tmp_path).prefix == ""
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 256}')
    prompts = tmp_path / "config_sentence_transformers.json"
    texts = '{"prompts": {"query": "query: ", "document": ""}, "default_prompt_name": %s}'
    prompts.write_text(texts % "null")
    assert sentence_settings(tmp_path).max_tokens == 256
    assert sentence_settings(tmp_path).prefix == ""
    prompts.write_text(texts % '"query"')
    assert sentence_settings(tmp_path).prefix == "query: "


QUANTIZED = {"quantization_config": {"quant_method": "gptq"}, "dtype": "bfloat16"}
OTHER_TYPES = {"torch_dtype": "float16", "dtype": "bfloat16"}


@pytest.mark.parametrize(
    ("config", "stored", "dtype"),
    [
        # the headers say it, whatever the config says
        (OTHER_TYPES, torch.float32, "float32"),
        (OTHER_TYPES, torch.float16, "float16"),
        (OTHER_TYPES, torch.bfloat16, "bfloat16"),
        ({}, torch.float64, "float32"),
        # without safetensors, and of a quantized checkpoint, the config does
        ({"torch_dtype": "bfloat16"}, None, "bfloat16"),
        ({"dtype": "torch.float16"}, None, "float16"),
        ({}, None, "float32"),
        ({"text_config": {"dtype": "bfloat16"}}, None, "bfloat16"),
        ({"dtype": "int8"}, None, "float32"),
        (QUANTIZED, torch.float16, "bfloat16"),
    ],
)
def test_the_type_to_compute_in(
    tmp_path: Path, config: dict[str, object], stored: torch.dtype | None, dtype: str
) -> None:
    if stored is None:
        (tmp_path / "config.json").write_text(json.dumps(config))
    else:
        checkpoint(tmp_path, config, w=torch.zeros(8, dtype=stored))
    assert checkpoint_dtype(tmp_path) == dtype


def test_of_mixed_types_the_one_with_most_bytes_counts(tmp_path: Path) -> None:
    """200 bytes of bfloat16 beside 196 and 200 of float32; integers do not count."""
    tensors = {
        "body": torch.zeros(100, dtype=torch.bfloat16),
        "ids": torch.zeros(1000, dtype=torch.int64),
    }
    fewer = checkpoint(tmp_path / "fewer", {}, head=torch.zeros(49), **tensors)
    equal = checkpoint(tmp_path / "equal", {}, head=torch.zeros(50), **tensors)
    assert checkpoint_dtype(fewer) == "bfloat16"
    assert checkpoint_dtype(equal) == "float32"
