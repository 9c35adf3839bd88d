import json
from pathlib import Path

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


def checkpoint(folder: Path, config: dict[str, object], **tensors: torch.Tensor) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    save_file(
        {name.replace("__", "."): t for name, t in tensors.items()}, folder / "model.safetensors"
    )
    return folder


@pytest.mark.parametrize(
    ("architecture", "kind"),
    [
        ("LlamaForSequenceClassification", "bradley_terry"),
        ("BertForTokenClassification", "bradley_terry"),
        ("Qwen3ForCausalLM", "generative"),
    ],
)
def test_kind(tmp_path: Path, architecture: str, kind: str) -> None:
    assert checkpoint_kind(checkpoint(tmp_path, {"architectures": [architecture]})) == kind


def test_kind_without_architectures_is_generative(tmp_path: Path) -> None:
    assert checkpoint_kind(checkpoint(tmp_path, {})) == "generative"


@pytest.mark.parametrize(
    "name", ["score__weight", "classifier__weight", "classifier__out_proj__weight"]
)
def test_a_scalar_head_is_accepted(tmp_path: Path, name: str) -> None:
    check_scalar_head(checkpoint(tmp_path, SCORER, **{name: torch.zeros(1, 4)}))


def test_a_missing_head_is_refused(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, SCORER, model__embed__weight=torch.zeros(1, 4))
    with pytest.raises(RewardError, match=r"score\.weight") as caught:
        check_scalar_head(folder)
    assert str(folder) in str(caught.value)
    assert "use a trained reward model" in str(caught.value)


def test_a_language_model_is_no_scalar_model(tmp_path: Path) -> None:
    folder = checkpoint(
        tmp_path,
        {"architectures": ["LlamaForCausalLM"], "num_labels": 1},
        lm_head__weight=torch.zeros(8, 4),
    )
    with pytest.raises(RewardError, match=r"is a LlamaForCausalLM.* kind=generative"):
        check_scalar_head(folder)


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({"architectures": ["BertForSequenceClassification"]}, "bradley_terry"),
        ({"architectures": ["BertModel"], "model_type": "bert"}, "similarity"),
        ({"architectures": ["RobertaForMaskedLM"], "model_type": "roberta"}, "similarity"),
        ({"model_type": "mpnet"}, "similarity"),
    ],
)
def test_what_writes_no_text_is_no_judge(
    tmp_path: Path, config: dict[str, object], kind: str
) -> None:
    with pytest.raises(RewardError, match=f"writes no text.* kind={kind}"):
        check_writes_text(checkpoint(tmp_path, config))


@pytest.mark.parametrize(
    "config",
    [
        {"architectures": ["Qwen3ForCausalLM"]},
        {"architectures": ["GPT2LMHeadModel"]},
        {"architectures": ["ChatGLMModel"], "model_type": "chatglm"},
        {"architectures": ["BertLMHeadModel"], "model_type": "bert"},
        {"model_type": "llama"},
    ],
)
def test_what_writes_text_may_be_a_judge(tmp_path: Path, config: dict[str, object]) -> None:
    check_writes_text(checkpoint(tmp_path, config))


def test_a_head_of_another_width_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RewardError, match=r"score\.weight \[5, 4\]"):
        check_scalar_head(checkpoint(tmp_path, SCORER, score__weight=torch.zeros(5, 4)))


def test_several_labels_are_refused(tmp_path: Path) -> None:
    folder = checkpoint(
        tmp_path, SCORER | {"id2label": {"0": "a", "1": "b"}}, score__weight=torch.zeros(2, 4)
    )
    with pytest.raises(RewardError, match=r"has 2 labels.* kind=bradley_terry with label"):
        check_scalar_head(folder)
    check_label_head(folder)


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


def test_positions(tmp_path: Path) -> None:
    assert max_positions(checkpoint(tmp_path, SCORER)) == 77
    assert max_positions(checkpoint(tmp_path, {"text_config": {"max_position_embeddings": 9}})) == 9
    assert (
        max_positions(
            checkpoint(
                tmp_path,
                {"model_type": "xlm-roberta", "max_position_embeddings": 514, "pad_token_id": 1},
            )
        )
        == 512
    )
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


TAGGER = {"architectures": ["LlamaForTokenClassification"], "id2label": {"0": "bad", "1": "good"}}


@pytest.mark.parametrize(
    ("config", "tensors"),
    [
        (TAGGER, {"score__weight": (2, 4)}),
        (
            TAGGER | {"architectures": ["BertForTokenClassification"]},
            {"classifier__weight": (2, 4)},
        ),
        (
            {"architectures": ["Qwen2ForProcessRewardModel"]},
            {"score__0__weight": (4, 4), "score__2__weight": (2, 4)},
        ),
        (SCORER, {"score__weight": (1, 4)}),
    ],
)
def test_a_head_for_tokens_is_accepted(
    tmp_path: Path, config: dict[str, object], tensors: dict[str, tuple[int, ...]]
) -> None:
    check_token_head(
        checkpoint(
            tmp_path, config, **{name: torch.zeros(shape) for name, shape in tensors.items()}
        )
    )


@pytest.mark.parametrize(
    ("config", "tensors", "reason"),
    [
        (TAGGER, {"model__embed__weight": (2, 4)}, "token scores would be random"),
        (TAGGER, {"score__weight": (3, 4)}, r"2 outputs and has score\.weight \[3, 4\]"),
        (
            SCORER | {"architectures": ["BertForSequenceClassification"]},
            {"classifier__weight": (1, 4)},
            "reads the whole sequence at once",
        ),
    ],
)
def test_what_says_nothing_of_tokens_is_refused(
    tmp_path: Path, config: dict[str, object], tensors: dict[str, tuple[int, ...]], reason: str
) -> None:
    with pytest.raises(RewardError, match=reason):
        check_token_head(
            checkpoint(
                tmp_path, config, **{name: torch.zeros(shape) for name, shape in tensors.items()}
            )
        )


def test_sentence_settings(tmp_path: Path) -> None:
    checkpoint(tmp_path, {})
    assert (sentence_settings(tmp_path).max_tokens > 10**9, sentence_settings(tmp_path).prefix) == (
        True,
        "",
    )
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 256}')
    prompts = tmp_path / "config_sentence_transformers.json"
    prompts.write_text(
        '{"prompts": {"query": "query: ", "document": ""}, "default_prompt_name": null}'
    )
    assert (sentence_settings(tmp_path).max_tokens, sentence_settings(tmp_path).prefix) == (256, "")
    prompts.write_text('{"prompts": {"query": "query: "}, "default_prompt_name": "query"}')
    assert sentence_settings(tmp_path).prefix == "query: "


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_headers_say_the_type_whatever_the_config_says(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    folder = checkpoint(
        tmp_path, {"torch_dtype": "float16", "dtype": "bfloat16"}, w=torch.zeros(4, 4, dtype=dtype)
    )
    assert f"torch.{checkpoint_dtype(folder)}" == str(dtype)


def test_float64_is_computed_in_float32(tmp_path: Path) -> None:
    assert (
        checkpoint_dtype(checkpoint(tmp_path, {}, w=torch.zeros(4, dtype=torch.float64)))
        == "float32"
    )


def test_of_mixed_types_the_one_with_most_bytes_counts(tmp_path: Path) -> None:
    body, ids = (
        torch.zeros(100, dtype=torch.bfloat16),
        torch.zeros(1000, dtype=torch.int64),
    )  # 200 bytes; integers do not count
    (tmp_path / "half").mkdir()
    (tmp_path / "equal").mkdir()
    assert (
        checkpoint_dtype(
            checkpoint(tmp_path / "half", {}, body=body, head=torch.zeros(49), ids=ids)
        )
        == "bfloat16"
    )  # 196 bytes
    assert (
        checkpoint_dtype(checkpoint(tmp_path / "equal", {}, body=body, head=torch.zeros(50)))
        == "float32"
    )  # 200 bytes


@pytest.mark.parametrize(
    ("config", "dtype"),
    [({"torch_dtype": "bfloat16"}, "bfloat16"), ({"dtype": "torch.float16"}, "float16"), ({}, "float32"),
     ({"text_config": {"dtype": "bfloat16"}}, "bfloat16"), ({"dtype": "int8"}, "float32")],
)  # fmt: skip
def test_without_safetensors_the_config_says_it(
    tmp_path: Path, config: dict[str, object], dtype: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert checkpoint_dtype(tmp_path) == dtype


def test_a_quantized_checkpoint_is_computed_in_the_type_of_its_config(tmp_path: Path) -> None:
    config: dict[str, object] = {
        "quantization_config": {"quant_method": "gptq"},
        "dtype": "bfloat16",
    }
    assert (
        checkpoint_dtype(checkpoint(tmp_path, config, scales=torch.zeros(8, dtype=torch.float16)))
        == "bfloat16"
    )
