"""The GPU worker of vLLM falls asleep beside other users of the device."""

from __future__ import annotations

from rmrl.inference.vllm.worker_extension import counted_bytes


def test_bytes_of_an_engine_that_the_driver_does_not_list() -> None:
    """PyTorch counts what a sleeping engine has unmapped, and no context (600 MiB by estimate)."""
    assert counted_bytes(40 * 2**30, freed=None) == 40 * 2**30
    assert counted_bytes(40 * 2**30, freed=39 * 2**30) == 2**30 + 600 * 2**20
    assert counted_bytes(40 * 2**30, freed=41 * 2**30) == 600 * 2**20
    # Nothing is known where others took memory meanwhile: the planned bytes stay.
    assert counted_bytes(40 * 2**30, freed=0) == counted_bytes(40 * 2**30, freed=-5) == 0
