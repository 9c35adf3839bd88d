"""The head's matrix under FSDP where logits are computed again in the backward pass, slice by
slice: the same training as with all logits kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmrl.backends.base import ProcessSettings
from rmrl.backends.fsdp.engine import FSDPEngine
from rmrl.config.schema import FSDPConfig
from rmrl.models import linear_head
from tests.backends.policies import (
    VOCABULARY,
    make_batch,
    make_settings,
    run_group,
    share,
    write_policy,
)

COMPARED = ("policy/loss", "policy/grad_norm", "policy/entropy")


def both_ways(
    process: ProcessSettings, policy: str, strategy: str, dtype: str | None, rank: int
) -> list[list[dict[str, float]]]:
    """Metrics of three updates, with all logits kept and with slices of three positions."""
    curves: list[list[dict[str, float]]] = []
    for slice_elements, kept in ((2**24, 2**26), (3 * VOCABULARY, 0)):
        linear_head.SLICE_ELEMENTS = slice_elements
        linear_head.KEPT_ELEMENTS = kept
        fsdp = FSDPConfig(param_dtype=dtype)
        model: dict[str, Any] = {"lora_rank": rank, "lora_alpha": rank}
        settings = make_settings(Path(policy), fsdp=fsdp, strategy=strategy, model=model)
        engine = FSDPEngine(settings=settings, process=process)
        curve: list[dict[str, float]] = []
        for step in range(3):
            metrics = engine.update([share(make_batch(7, seed=step), process)])
            curve.append({name: metrics[name] for name in COMPARED})
        curves.append(curve)
    return curves


@pytest.mark.parametrize(
    ("strategy", "dtype", "rank"),
    [("fsdp2", None, 0), ("fsdp", None, 0), ("fsdp2", "bfloat16", 0), ("fsdp2", None, 4)],
)
def test_slices_train_as_kept_logits_do(
    strategy: str, dtype: str | None, rank: int, tmp_path: Path
) -> None:
    if rank:
        pytest.importorskip("peft")
    policy = write_policy(tmp_path / "policy")
    arguments = (str(policy), strategy, dtype, rank)
    whole, sliced = run_group(both_ways, 2, tmp_path, *arguments)
    rel = 1e-5 if dtype is None else 0.02
    for expected, metrics in zip(whole, sliced, strict=True):
        assert metrics == pytest.approx(expected, rel=rel, abs=1e-6)
    assert whole[0]["policy/grad_norm"] > 0.01
