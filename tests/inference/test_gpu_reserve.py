"""What an engine has use for, from shapes small enough to count by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmrl.inference.gpu_reserve import ENGINE_PROCESS_BYTES, Reserve, reserve
from rmrl.models.checkpoint_inspect import kv_bytes

SHAPE = {
    "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 256, "vocab_size": 1000,
}  # fmt: skip
HELD = 10**7
PROCESS = ENGINE_PROCESS_BYTES["cuda"] + 2 * 2**30


def checkpoint(folder: Path, **changes: object) -> Path:
    (folder / "config.json").write_text(json.dumps(SHAPE | changes), encoding="utf-8")
    return folder


def sized(folder: Path, **changes: Any) -> Reserve:
    settings = {
        "held_bytes": HELD, "width": 1, "context": 100, "sequences": 10, "batched_tokens": 50, "gpu_bytes": 0,
    }  # fmt: skip
    return reserve(folder, **{**settings, **changes})


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 512),  # 2 bytes, 2 layers, keys and values, 2 heads of 32
        ({"num_key_value_heads": None}, 1024),
        ({"head_dim": 64}, 1024),
        ({"kv_lora_rank": 48, "qk_rope_head_dim": 16}, 256),
        ({"model_type": "modernbert"}, 0),
        ({"text_config": SHAPE | {"num_hidden_layers": 3}}, 768),
    ],
)
def test_keys_and_values_of_a_token(tmp_path: Path, changes: dict[str, Any], count: int) -> None:
    assert kv_bytes(checkpoint(tmp_path, **changes)) == count


def test_an_engine_that_writes_keeps_keys_and_values_to_the_end(tmp_path: Path) -> None:
    # A step of 100 tokens, 2 x (6 x 128 + 3 x 256) bytes each; 10 rows of 1,000 logits, 8 bytes each
    fixed = HELD + PROCESS + 100 * 3072 + 80_000
    size = sized(checkpoint(tmp_path))
    assert size == Reserve(fixed + 100 * 512, fixed + 1000 * 512)


def test_a_prompt_that_is_cut_needs_the_activations_of_a_part(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    assert sized(tmp_path).start - sized(tmp_path, chunks=True).start == 50 * 3072


def test_an_engine_that_scores_keeps_them_for_a_step(tmp_path: Path) -> None:
    fixed = HELD + PROCESS + 100 * 3072
    size = sized(checkpoint(tmp_path), generates=False)
    assert size == Reserve(fixed + 100 * 512, fixed + 200 * 512)


def test_parts_share_weights_and_heads(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    one, two = sized(tmp_path), sized(tmp_path, width=2)
    assert one.start - two.start == HELD // 2 + 100 * 256
    assert one.useful - two.useful == HELD // 2 + 1000 * 256


def test_an_engine_that_stays_has_room_for_several_sequences(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    away, stays = sized(tmp_path, sequences=40), sized(tmp_path, sequences=40, stays=True)
    assert stays.start - away.start == 31 * 100 * 512
    assert stays.useful == away.useful
    assert sized(tmp_path, stays=True).start == sized(tmp_path).useful  # ten sequences are all


def test_no_engine_takes_more_than_nine_tenths(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    assert sized(tmp_path, gpu_bytes=2**30) == Reserve(int(0.9 * 2**30), int(0.9 * 2**30))
