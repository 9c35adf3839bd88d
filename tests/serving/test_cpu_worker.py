"""What a sleeping engine forgets is given back to the system and reads as zero afterwards."""

from __future__ import annotations

import psutil
import pytest
import torch

pytestmark = pytest.mark.slow  # importing vLLM takes seconds


@pytest.mark.parametrize("size", [0, 1, 100, 4096, 10_000, 2**20 + 3])
def test_what_is_forgotten_is_zero_and_its_neighbours_are_not(size: int) -> None:
    from rmrl.serving.cpu_worker import forget

    whole = torch.full((size + 64,), 7, dtype=torch.uint8)
    apart = torch.full((size,), 7, dtype=torch.uint8)
    forget([apart, apart[1:]])
    assert not apart.any()
    assert (whole == 7).all()


def test_its_pages_return_to_the_system() -> None:
    from rmrl.serving.cpu_worker import forget

    tensor = torch.ones(2**26, dtype=torch.uint8)
    before = psutil.Process().memory_info().rss
    forget([tensor])
    assert before - psutil.Process().memory_info().rss > 2**26 * 0.9
    tensor[:100] = 3
    assert int(tensor.sum()) == 300
