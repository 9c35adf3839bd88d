"""What null means for an engine, by its device."""

from __future__ import annotations

from typing import Any

import pytest

from rmrl.config.schema import RolloutConfig
from rmrl.inference.rollout_base import RolloutEngineSettings


@pytest.mark.parametrize(
    ("device", "typed", "expected"), [("cpu", None, 256), ("cuda", None, 512), ("cuda", 7, 7)]
)
def test_sequences_decoded_together(device: Any, typed: int | None, expected: int) -> None:
    settings = RolloutEngineSettings.of(
        RolloutConfig(max_num_seqs=typed),
        path="policy",
        tokenizer=None,
        device=device,
        threads=1,
        max_model_len=64,
    )
    assert settings.max_num_seqs == expected
