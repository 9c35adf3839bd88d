"""The garbage collector is as before when a server has ended."""

from __future__ import annotations

import gc

from rmrl.garbage import rare_collections


def test_collections_are_rare_in_the_block_alone() -> None:
    before = gc.get_threshold()
    with rare_collections():
        assert gc.get_threshold()[0] > before[0]
        assert gc.get_freeze_count() > 1000
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
