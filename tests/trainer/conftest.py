"""For the runs of fakes in this folder."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four fifths of a fake run's time is drawing curves.png; the jobs in processes of their own
    draw it and look at it."""
    monkeypatch.setattr("rmrl.telemetry.curve.draw_curves", lambda *_: False)
