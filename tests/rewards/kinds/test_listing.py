"""What `rmrl show kinds` prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmrl.main_show import main as show
from rmrl.rewards.kinds import REWARD_KINDS


def test_every_kind_is_listed_with_a_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert show(["kinds"]) == 0
    lines = capsys.readouterr().out.splitlines()
    first = {line.split()[0]: line.split()[1:] for line in lines if line[:1].isalpha()}
    assert set(REWARD_KINDS) < set(first)
    assert all(len(first[name]) >= 5 for name in REWARD_KINDS)
    assert "ensemble       one score from several rewards: their mean, minimum, median, or a" in (
        "\n".join(lines)
    )
