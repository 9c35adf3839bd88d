"""Processes without Ray: results and our errors come through, death and silence are told apart,
nothing is left."""

from __future__ import annotations

import os

import pytest

from rmrl.cluster.local import visible_devices


def test_devices_are_positions_among_those_that_are_visible(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6,7")
    assert visible_devices((0, 2)) == "4,7"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert visible_devices((0, 2)) == "0,2"
    assert "CUDA_VISIBLE_DEVICES" not in os.environ
