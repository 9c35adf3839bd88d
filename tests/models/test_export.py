"""Exports: transformers reads them back, in one file or several, and a failure leaves nothing
behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    PreTrainedTokenizerFast,
)

from rmrl.models.export import Writers, save_hf_folder


@pytest.fixture
def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    shape = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
    }
    return LlamaForCausalLM(
        LlamaConfig(vocab_size=200, num_hidden_layers=2, tie_word_embeddings=True, **shape)
    )


@pytest.mark.parametrize(("shard_bytes", "files"), [(2**30, 1), (100_000, 4)])
def test_transformers_reads_it_back(
    model: LlamaForCausalLM, tmp_path: Path, shard_bytes: int, files: int
):
    folder = tmp_path / "out" / "hf"
    save_hf_folder(folder, model, model.named_parameters(), shard_bytes=shard_bytes)
    assert len(list(folder.glob("*.safetensors"))) == files
    loaded, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    row = torch.arange(7)[None]
    assert torch.equal(loaded(row).logits, model(row).logits)


def test_config_says_the_dtype_of_the_weights(model: LlamaForCausalLM, tmp_path: Path):
    model.config.use_cache = False  # as training sets it
    save_hf_folder(tmp_path / "hf", model, ((n, p.bfloat16()) for n, p in model.named_parameters()))
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "hf", dtype="auto")
    assert loaded.dtype is torch.bfloat16
    assert loaded.config.use_cache
    assert loaded.config.architectures == ["LlamaForCausalLM"]


ENDS = "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"
REFUSES = "{{ raise_exception('no') }}"
LINES = "{% for m in messages %}{{ m.content }}{{ eos_token }}\n{% endfor %}"
PLAIN = {"bos_token": "<s>", "pad_token": "</s>", "unk_token": "<unk>"}
SAME = dict.fromkeys(("bos_token", "pad_token", "unk_token"), "</s>")


@pytest.mark.parametrize(
    ("template", "tokens", "own", "pad"),
    [
        (ENDS, PLAIN, None, "<s>"),  # Mistral: the end token stands in for padding
        (ENDS, {**PLAIN, "extra_special_tokens": ["<|right_pad|>"]}, 2, "<|right_pad|>"),  # Llama 3
        (ENDS, {**PLAIN, "extra_special_tokens": ["<|pad|>"], "bos_token": None}, None, "<unk>"),
        (REFUSES, PLAIN, None, "<s>"),
        (LINES, PLAIN, None, "</s>"),  # Qwen: a line end is last
        (None, PLAIN, None, "</s>"),
        ("{% for m in messages %}{{ m.content }}{% endfor %}", PLAIN, None, "</s>"),
        (ENDS, PLAIN, 5, "t5"),
        (ENDS, SAME, 2, None),  # GPT-2 has one special token
    ],
)
def test_transformers_reads_a_classifier_where_its_text_ends(
    tmp_path: Path, template: str | None, tokens: dict[str, Any], own: int | None, pad: str | None
):
    words = ["<unk>", "<s>", "</s>", *(f"t{i}" for i in range(3, 39)), "<|right_pad|>"]
    core = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>")
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="</s>", **tokens)
    tokenizer.chat_template = template
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "vocab_size": 40}
    config = LlamaConfig(**shape, num_attention_heads=1, num_labels=1, pad_token_id=own)
    model = LlamaForSequenceClassification(config).eval()
    save_hf_folder(tmp_path / "rm", model, model.named_parameters(), tokenizer=tokenizer)
    got = AutoModelForSequenceClassification.from_pretrained(tmp_path / "rm").eval()
    reader = AutoTokenizer.from_pretrained(tmp_path / "rm")
    assert reader.pad_token == pad
    assert got.config.pad_token_id == reader.pad_token_id

    # Two texts that end as the template ends them, scored one by one and together.
    last = [2] if template in (ENDS, REFUSES) else [7]
    texts = [[1, 5, 9, 11, *last], [1, 6, *last]]
    scores: list[float] = []
    for text in texts:
        hidden = model.model(torch.tensor([text])).last_hidden_state
        scores.append(model.score(hidden)[0, -1].item())
        assert got(torch.tensor([text])).logits.item() == pytest.approx(scores[-1], abs=1e-6)
    if pad is not None:
        batch = reader.pad({"input_ids": texts}, padding_side="right", return_tensors="pt")
        assert got(**batch).logits[:, 0].tolist() == pytest.approx(scores, abs=1e-6)


def test_an_older_export_is_replaced(model: LlamaForCausalLM, tmp_path: Path):
    folder = tmp_path / "hf"
    folder.mkdir()
    (folder / "stale.txt").write_text("old")
    save_hf_folder(folder, model, model.named_parameters())
    assert not (folder / "stale.txt").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["hf"]


def test_a_failure_on_the_way_leaves_the_older_export(model: LlamaForCausalLM, tmp_path: Path):
    def broken() -> Iterator[tuple[str, torch.Tensor]]:
        yield next(iter(model.named_parameters()))
        raise RuntimeError("a process died")

    folder = tmp_path / "hf"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    with pytest.raises(RuntimeError, match="a process died"):
        save_hf_folder(folder, model, broken())
    assert [p.name for p in tmp_path.iterdir()] == ["hf"]
    assert (folder / "config.json").read_text() == "{}"


def test_two_processes_deal_out_the_files(model: LlamaForCausalLM, tmp_path: Path):
    """Two threads stand for them; each writes every second one of the four files."""
    meet = threading.Barrier(2, timeout=30)

    def write(rank: int) -> None:
        writers = Writers(rank=rank, count=2, barrier=meet.wait)
        parameters = model.named_parameters()
        save_hf_folder(tmp_path / "hf", model, parameters, shard_bytes=100_000, writers=writers)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(write, (0, 1)))
    assert len(list((tmp_path / "hf").glob("model-*-of-00004.safetensors"))) == 4
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "hf")
    row = torch.arange(7)[None]
    assert torch.equal(loaded(row).logits, model(row).logits)
    assert [p.name for p in tmp_path.iterdir()] == ["hf"]


def test_a_process_writes_its_own_files_alone(model: LlamaForCausalLM, tmp_path: Path):
    """The second of two, without the first: files 1 and 3 of four."""
    (tmp_path / ".hf.writing").mkdir()
    writers = Writers(rank=1, count=2)
    save_hf_folder(
        tmp_path / "hf", model, model.named_parameters(), shard_bytes=100_000, writers=writers
    )
    names = sorted(path.name for path in (tmp_path / ".hf.writing").iterdir())
    assert names == ["part-1", "part-3"]
