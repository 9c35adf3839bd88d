"""A word-level tokenizer and files made on the spot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif"
    " %}<{{ m.role }}> {{ m.content }} {% if not loop.last or add_generation_prompt %}<end> {%"
    " endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% if thinking is defined %} {{"
    " thinking }}{% endif %}{% endif %}"
)
WORDS = ["<unk>", "<end>", "<user>", "<assistant>", "<system>", "a", "b", "c", "d", "e", "think"]


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    """Ids are the positions in WORDS; unknown words are 0."""
    core = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=core, unk_token="<unk>", eos_token="<end>", chat_template=TEMPLATE
    )


@pytest.fixture
def jsonl(tmp_path: Path):
    """jsonl(rows, name) writes a file and returns its path."""

    def write(rows: list[object], name: str = "rows.jsonl") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
        )
        return path

    return write
