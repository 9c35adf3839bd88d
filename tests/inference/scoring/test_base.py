import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmrl.errors import ConfigError
from rmrl.inference.reward_engine_base import (
    EngineSpec,
    GenerateRequest,
    PoolingRequest,
    only_label,
    overlong_labels,
    overlong_texts,
)
from rmrl.inference.reward_engines import ENGINES
from rmrl.types import Sampling
from tests.support import fakes

GIVEN: dict[str, Any] = {
    "runner": "pooling", "name": fakes.REWARD_ENGINE, "dtype": "float32", "max_model_len": None, "max_num_seqs": 4, "max_num_batched_tokens": 64,
    "tensor_parallel_size": 1, "gpu_memory_utilization": 0.5, "kv_cache_bytes": 2**20, "device": "cpu", "threads": 1,
}  # fmt: skip


def spec(path: str, **changed: Any) -> EngineSpec:
    return EngineSpec(path=path, **(GIVEN | changed))


def test_key_sees_one_folder_behind_two_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "link").symlink_to("m")
    monkeypatch.chdir(tmp_path)
    keys = {spec(p).key for p in ("m", "./m/", "link", str(tmp_path / "m"))}
    assert len(keys) == 1


def test_key_differs_with_every_setting(tmp_path: Path) -> None:
    first = spec(str(tmp_path))
    changes: list[dict[str, Any]] = [
        {"runner": "generate"},
        {"dtype": "bfloat16"},
        {"kwargs": {"a": 1}},
        {"batch_invariant": True},
    ]
    others = [spec("org/name"), *(replace(first, **change) for change in changes)]
    assert len({first.key, *(o.key for o in others)}) == 6


def test_key_ignores_the_order_of_kwargs() -> None:
    assert (
        spec("org/m", kwargs={"a": 1, "b": [2]}).key == spec("org/m", kwargs={"b": [2], "a": 1}).key
    )
    assert hash(spec("org/m", kwargs={"b": [2]}).key) is not None


def test_context_length_is_bounded_by_the_checkpoint_and_by_4096(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"max_position_embeddings": 512}')
    assert spec(str(tmp_path)).context_length() == 512
    assert spec(str(tmp_path), max_model_len=100).context_length() == 100
    assert spec(str(tmp_path), max_model_len=600).context_length() == 512
    config.write_text('{"max_position_embeddings": 131072}')
    assert spec(str(tmp_path)).context_length() == 4096
    assert spec(str(tmp_path), max_model_len=9000).context_length() == 9000


def test_marks_of_the_overlong_say_both_numbers() -> None:
    texts = overlong_texts(GenerateRequest((1, 2), Sampling(max_tokens=1, n=3)), 2)
    cuts = "(overlong=truncate_right of the reward would cut it)"
    detail = f"the input has 2 tokens and max_model_len is 2 {cuts}"
    assert [(t.text, t.finish_reason, t.tokens_in, t.failure, t.detail) for t in texts] == [
        ("", "", 2, "overlong", detail)
    ] * 3
    value = only_label(overlong_labels(PoolingRequest((1, 2, 3)), 2))
    assert math.isnan(value.value)
    assert (value.failure, value.tokens_in, value.detail) == (
        "overlong",
        3,
        f"the input has 3 tokens and max_model_len is 2 {cuts}",
    )


def test_unknown_engine_is_named() -> None:
    with pytest.raises(ConfigError, match="did you mean 'vllm'"):
        ENGINES["vlm"]
