"""The GPU worker of vLLM falls asleep beside other users of the device."""

from __future__ import annotations

from rmrl.inference.vllm.worker_extension import asleep_bytes


def test_bytes_of_an_engine_that_the_driver_does_not_list() -> None:
    """What was reserved less what sleeping freed, and a context of 600 MiB by estimate."""
    assert asleep_bytes(40 * 2**30, freed=39 * 2**30) == 2**30 + 600 * 2**20
    assert asleep_bytes(40 * 2**30, freed=41 * 2**30) == 600 * 2**20
    # Nothing is known where others took memory meanwhile: the planned bytes stay.
    assert asleep_bytes(40 * 2**30, freed=0) == asleep_bytes(40 * 2**30, freed=-5) == 0
