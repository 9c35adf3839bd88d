"""Facts about a Hugging Face checkpoint folder, read from config.json and safetensors headers. No
weight is loaded."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from rmrl.errors import ConfigError, RewardError, first_line
from rmrl.files import is_there

CheckpointKind = Literal["bradley_terry", "generative"]

_SCORING_SUFFIXES = ("ForSequenceClassification", "ForTokenClassification")
OPENRLHF = "RewardModel"
"""Architecture that OpenRLHF gives its reward models (peer_heads.py)."""
WRITES_TEXT = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
"""Ends of names of architectures that write text."""
_WRITES_NO_TEXT = (*_SCORING_SUFFIXES, "ForMaskedLM", "ForQuestionAnswering", "ForMultipleChoice")
_ENCODERS = {
    "bert", "roberta", "xlm-roberta", "distilbert", "deberta", "deberta-v2", "electra", "albert",
    "mpnet", "camembert", "modernbert", "nomic_bert", "xlm",
}  # fmt: skip
"""`model_type` of encoders, which have no language-model head."""
_HEAD_MODULES = {
    "score",
    "classifier",
    "classification_head",
    "logits_proj",
    "reward_head",
    "v_head",
    "value_head",
    "regression_layer",
}
_GATED = "ForRewardModelWithGating"
"""Architectures of ArmoRM and its kin: attributes (regression_layer) that a gating network of the
checkpoint's own code sums to one score."""
_SIZES = {
    "F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2,
    "U16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "I8": 1, "U8": 1, "BOOL": 1,
}  # fmt: skip
_FLOATS = {"F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2"}
_DTYPE_BYTES = {"float64": 8, "float32": 4, "float16": 2, "half": 2, "bfloat16": 2}
_STORED = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_COMPUTED = ("float32", "float16", "bfloat16")
"""Types that models are computed in, the most precise first."""
_NO_LIMIT = 1 << 30


@dataclass(frozen=True, slots=True)
class TensorHeader:
    """One tensor as its file's header describes it; `dtype` is safetensors' code, e.g. "BF16"."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path

    @property
    def count(self) -> int:
        """How many elements there are."""
        return math.prod(self.shape)


def local_checkpoint(path: str | Path, key: str = "model path") -> Path:
    """A checkpoint's folder. A hub id is looked up in (and, online, fetched to) the local hub
    cache. `key`: where the path was typed.

    Raises ConfigError when there is no such folder and no such hub id, or no config.json in it.
    """
    folder = Path(path).expanduser()
    exists = is_there(folder)
    if not exists or not folder.is_dir():
        # one slash, as in org/name; "." and "~" begin the path of a folder
        parts = str(path).split("/")
        is_hub_id = len(parts) == 2 and all(parts) and not parts[0].startswith((".", "~"))
        if exists or not is_hub_id:
            of_server = ", or a server by its server.url" if "://" in str(path) else ""
            raise ConfigError(
                f"{key}: '{path}' is not a folder; give a Hugging Face checkpoint folder or a hub"
                f" id such as org/name{of_server}"
            )
        from huggingface_hub import snapshot_download

        patterns = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", "*.py"]
        try:
            folder = Path(snapshot_download(str(path), allow_patterns=patterns))
        except (OSError, ValueError) as error:  # the hub's own errors derive from these two
            raise ConfigError(
                f"{key}: '{path}' is no folder here and could not be fetched from the hub"
                f" ({first_line(error)}); give a folder"
            ) from error
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"{key}: '{folder}' holds no config.json; a checkpoint folder needs config.json and"
            " *.safetensors"
        )
    return folder


def read_config(path: str | Path) -> dict[str, Any]:
    """config.json as a dict. Raises ConfigError when it is missing or not JSON."""
    file = local_checkpoint(path) / "config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"'{file}' is not JSON ({error}); copy the checkpoint again") from error
    if not isinstance(config, dict):
        raise ConfigError(
            f"'{file}' holds {type(config).__name__} where an object is needed; copy the checkpoint"
            " again"
        )
    return config


def checkpoint_kind(path: str | Path) -> CheckpointKind:
    """bradley_terry for a *ForSequenceClassification / *ForTokenClassification architecture and for
    OpenRLHF's, else generative."""
    name = architecture(path)
    if name.endswith(_SCORING_SUFFIXES) or name == OPENRLHF:
        return "bradley_terry"
    return "generative"


def architecture(path: str | Path) -> str:
    """The first entry in config.json's `architectures`, "" when there is none."""
    names = read_config(path).get("architectures") or [""]
    return str(names[0])


def check_scalar_head(path: str | Path) -> None:
    """Raise RewardError unless the checkpoint has one label and the tensor that produces it."""
    check_label_head(path)
    labels = label_count(read_config(path))
    if labels != 1:
        raise RewardError(
            f"'{path}' has {labels} labels and a scalar reward needs 1; use a checkpoint with"
            " num_labels=1, or kind=bradley_terry with label or label_weights"
        )


def check_label_head(path: str | Path) -> None:
    """Raise RewardError unless the checkpoint holds a head with as many outputs as its config.json
    has labels.

    Engines initialise a missing head at random, with a warning at most, and random scores look
    like scores.
    """
    name = architecture(path)
    if name.endswith(WRITES_TEXT):
        raise RewardError(
            f"'{path}' is a {name}: a language model writes text and has no scalar head; use"
            " kind=generative, or give a trained reward model (*ForSequenceClassification with"
            " num_labels=1)"
        )
    labels = label_count(read_config(path))
    heads = _heads(path)
    if not heads:
        raise RewardError(
            f"'{path}' has the architecture '{name}' in its config.json but holds no head tensor"
            " (score.weight, classifier.weight or the like), so its scores would be random; use a"
            " trained reward model, or this checkpoint as kind=generative"
        )
    if not name.endswith(_GATED) and not _has_outputs(heads, labels):
        outputs = "1 output" if labels == 1 else f"{labels} outputs"
        raise RewardError(
            f"'{path}' needs a head with {outputs} and has {_listed(heads)}; its config.json and"
            " its weights disagree"
        )


def no_writer(path: str | Path) -> str:
    """Return what a checkpoint is that writes no text, a classifier or an encoder such as BERT; ""
    for one that does."""
    name = architecture(path)
    model_type = read_config(path).get("model_type")
    if name.endswith(WRITES_TEXT):
        return ""
    if model_type in _ENCODERS or name.endswith(_WRITES_NO_TEXT):
        return name or str(model_type)
    return ""


def check_writes_text(path: str | Path, where: str = "") -> None:
    """Raise RewardError for a checkpoint that cannot be a judge: a classifier, or an encoder such
    as BERT. `where`: the reward's entries, for what to type."""
    name = no_writer(path)
    if not name:
        return
    prefix = f"{where}." if where else ""
    other, use = "similarity", "which compares with the reference"
    if name.endswith(_SCORING_SUFFIXES):
        other, use = (
            "bradley_terry",
            "which takes the scores of its head, without rubric and template",
        )
    raise RewardError(
        f"'{path}' is a {name}, which writes no text, and a judge has to; give a *ForCausalLM"
        f" checkpoint, {prefix}path=..., or type {prefix}kind={other}, {use}"
    )


def check_token_head(path: str | Path) -> None:
    """Raise RewardError unless the checkpoint can be read at every token, and holds the tensor that
    does it.

    That is a *ForTokenClassification or process reward model, or a sequence head that is one linear
    map (`score`).
    """
    name = architecture(path)
    labels = label_count(read_config(path))
    heads = _heads(path)
    if not heads:
        raise RewardError(
            f"'{path}' has the architecture '{name}' in its config.json but holds no head tensor"
            " (score.weight, classifier.weight or the like), so its token scores would be random;"
            " use a checkpoint trained to score tokens or steps"
        )
    linear = any(head.name.endswith("score.weight") for head in heads)
    if name.endswith("ForSequenceClassification") and not linear:
        raise RewardError(
            f"'{path}' is a {name} whose head ({heads[0].name}) reads the whole sequence at once"
            " and has no output per token; use a *ForTokenClassification checkpoint, or this"
            " one as kind=bradley_terry"
        )
    if not _has_outputs(heads, labels):
        raise RewardError(
            f"'{path}' needs a head with {labels} outputs and has {_listed(heads)}; its config.json"
            " and its weights disagree"
        )


def _heads(path: str | Path) -> list[TensorHeader]:
    """Scoring heads' tensors."""
    heads: list[TensorHeader] = []
    for header in tensor_headers(path):
        *modules, last = header.name.split(".")
        if last in ("weight", "summary") and not _HEAD_MODULES.isdisjoint(modules):
            heads.append(header)
    return heads


def _has_outputs(heads: Sequence[TensorHeader], count: int) -> bool:
    return any(head.shape[:1] == (count,) for head in heads)


def _listed(heads: Sequence[TensorHeader]) -> str:
    return ", ".join(f"{head.name} {list(head.shape)}" for head in heads)


@dataclass(frozen=True, slots=True)
class SentenceSettings:
    """A sentence-transformers folder's input settings."""

    max_tokens: int
    """Longest text it embeds, in tokens. A very large number when there is no limit."""
    prefix: str
    """Put before every text, "" for nearly all models."""


def sentence_settings(path: str | Path) -> SentenceSettings:
    """Read sentence_bert_config.json and config_sentence_transformers.json. A plain encoder has
    neither."""
    limit = _optional_json(path, "sentence_bert_config.json").get("max_seq_length")
    if not isinstance(limit, int) or limit <= 0:
        limit = _NO_LIMIT
    prompts = _optional_json(path, "config_sentence_transformers.json")
    prefix = (prompts.get("prompts") or {}).get(prompts.get("default_prompt_name"), "")
    return SentenceSettings(limit, str(prefix or ""))


def _optional_json(path: str | Path, name: str) -> dict[str, Any]:
    file = local_checkpoint(path) / name
    if not file.is_file():
        return {}
    return json.loads(file.read_text(encoding="utf-8"))


def label_count(config: Mapping[str, Any]) -> int:
    """num_labels as transformers counts it: stated, else the length of id2label, else 2. A model
    whose gating network sums its attributes has 1."""
    if str((config.get("architectures") or [""])[0]).endswith(_GATED):
        return 1
    if config.get("id2label"):
        return len(config["id2label"])
    return int(config.get("num_labels") or 2)


def parameter_count(path: str | Path) -> int:
    """Floating-point numbers stored in the checkpoint; tied weights are stored, and counted,
    once."""
    return sum(header.count for header in tensor_headers(path) if header.dtype in _FLOATS)


def weight_bytes(path: str | Path, dtype: str) -> int:
    """The weights' bytes when floating-point tensors are held as `dtype` ("auto": as stored)."""
    stored = dtype == "auto"
    if not stored and dtype not in _DTYPE_BYTES:
        raise ConfigError(
            f"dtype '{dtype}' is not known; use one of auto, {', '.join(sorted(_DTYPE_BYTES))}"
        )
    total = 0
    for header in tensor_headers(path):
        keeps_dtype = stored or header.dtype not in _FLOATS
        size = _SIZES[header.dtype] if keeps_dtype else _DTYPE_BYTES[dtype]
        total += header.count * size
    return total


def kv_bytes(path: str | Path) -> int:
    """Return what a token's keys and values take in 16 bits. Encoders keep none. With latent
    attention (DeepSeek-V2, arXiv 2405.04434) a layer keeps one compressed vector for a token."""
    config: Mapping[str, Any] = read_config(path)
    config = config.get("text_config") or config
    if "bert" in str(config.get("model_type", "")):
        return 0
    heads = int(config.get("num_attention_heads") or 1)
    width = int(config.get("head_dim") or config.get("hidden_size", 0) // heads)
    numbers = 2 * width * int(config.get("num_key_value_heads") or heads)
    if config.get("kv_lora_rank"):
        numbers = int(config["kv_lora_rank"]) + int(config.get("qk_rope_head_dim") or 0)
    return 2 * numbers * int(config.get("num_hidden_layers") or 0)


def checkpoint_dtype(path: str | Path) -> str:
    """The dtype that the checkpoint is made for: float32, bfloat16 or float16.

    It is the type that most bytes of the floating-point tensors are stored in (equal shares: the
    more precise one; float64 counts as float32). Quantized checkpoints, and folders without
    safetensors, have the type that config.json names; without one float32.
    """
    config = read_config(path)
    if config.get("quantization_config") or not any(local_checkpoint(path).glob("*.safetensors")):
        return _named_dtype(config)
    stored_bytes: dict[str, int] = dict.fromkeys(_COMPUTED, 0)
    for tensor in tensor_headers(path):
        name = _STORED.get(tensor.dtype)
        if name == "float64":
            name = "float32"
        if name is not None:
            stored_bytes[name] += tensor.count * _SIZES[tensor.dtype]
    if not any(stored_bytes.values()):
        return _named_dtype(config)
    return max(stored_bytes, key=lambda name: stored_bytes[name])


def _named_dtype(config: Mapping[str, Any]) -> str:
    """The dtype in config.json (`dtype`, older: `torch_dtype`), also below `text_config`."""
    for section in (config, config.get("text_config") or {}):
        name = str(section.get("dtype") or section.get("torch_dtype") or "").removeprefix("torch.")
        if name in _COMPUTED:
            return name
    return "float32"


def max_positions(path: str | Path) -> int:
    """Longest sequence the checkpoint was made for, in tokens. A very large number when config.json
    has no such entry.

    RoBERTa and related models count positions from pad_token_id + 1, so that many table rows are
    never used.
    """
    config = read_config(path)
    text = config.get("text_config") or {}
    reserved = 0
    if "roberta" in str(config.get("model_type", "")):
        reserved = int(config.get("pad_token_id", 1)) + 1
    for key in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"):
        value = config.get(key) or text.get(key)
        if isinstance(value, int) and value > 0:
            return value - reserved
    return _NO_LIMIT


def vocabulary_size(path: str | Path) -> int:
    """How many tokens the model's logits have, padding rows included. A very large number when
    config.json has no such entry."""
    config = read_config(path)
    text = config.get("text_config") or {}
    size = config.get("vocab_size") or text.get("vocab_size")
    return size if isinstance(size, int) else _NO_LIMIT


def tensor_headers(path: str | Path) -> tuple[TensorHeader, ...]:
    """Every tensor in the checkpoint's safetensors files. Raises ConfigError when there are none or
    one is torn."""
    return tuple(chain.from_iterable(map(file_headers, _weight_files(local_checkpoint(path)))))


def file_headers(file: Path) -> tuple[TensorHeader, ...]:
    """Every tensor in one safetensors file. Raises ConfigError when it is torn."""
    headers: list[TensorHeader] = []
    size = file.stat().st_size
    with file.open("rb") as stream:
        prefix = stream.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else size
        if 8 + length > size:
            raise ConfigError(
                f"'{file}' is torn ({size} bytes, its header alone needs more); copy the"
                " checkpoint again"
            )
        entries = json.loads(stream.read(length))
    entries.pop("__metadata__", None)
    end = 0
    for name, entry in entries.items():
        headers.append(TensorHeader(name, entry["dtype"], tuple(entry["shape"]), file))
        end = max(end, entry["data_offsets"][1])
    if 8 + length + end > size:
        raise ConfigError(
            f"'{file}' is torn ({size} bytes of {8 + length + end}); copy the checkpoint again"
        )
    return tuple(headers)


def stored_bytes(headers: Sequence[TensorHeader]) -> int:
    """Tensors' bytes as they are stored."""
    return sum(header.count * _SIZES[header.dtype] for header in headers)


def _weight_files(folder: Path) -> list[Path]:
    """The files that the index names, else all in the folder.

    Raises ConfigError for an index beside missing shards.
    """
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise ConfigError(
                f"'{folder}' holds no *.safetensors; convert its weights, e.g."
                " AutoModel.from_pretrained(...).save_pretrained(...)"
            )
        return files
    weight_map: dict[str, str] = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    files = [folder / name for name in sorted(set(weight_map.values()))]
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise ConfigError(
            f"'{folder}' lacks {len(missing)} weight files that its index names, e.g. {missing[0]};"
            " copy it again"
        )
    return files
