"""`rmrl doctor` with every check, on this machine."""

from __future__ import annotations

import pytest

from rmrl.main_doctor import main


def test_everything_works_here(capsys: pytest.CaptureFixture[str]) -> None:
    """Real torch.distributed, vLLM and Ray."""
    assert main([]) == 0
    out = capsys.readouterr().out
    assert "gloo: all-reduce over 2 processes" in out
    assert "\nok       vLLM " in out
    assert "\nok       Ray " in out
