"""How far an engine is in its present call."""

from __future__ import annotations

import pytest

from rmrl.inference.progress import Progress


def test_a_bar_counts_and_displays_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """With all that vLLM does to its bars."""
    progress = Progress()
    bar = progress.bar(total=5, desc="Processed prompts", dynamic_ncols=True, postfix="speed: 0")
    bar.update(2)
    assert progress.count == 2
    assert bar.format_dict["elapsed"] >= 0
    bar.postfix = "speed: 1"
    bar.update(3)
    assert bar.n == 5
    bar.refresh()
    bar.close()
    progress.add()
    assert progress.count == 6
    assert capsys.readouterr() == ("", "")
