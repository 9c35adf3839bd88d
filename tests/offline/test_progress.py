"""Lines of a scoring job's log."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from rmrl.offline.progress import counting


def test_the_time_left_counts_from_the_first_scores_not_from_the_load_of_a_model(
    caplog: pytest.LogCaptureFixture,
) -> None:
    times = iter([0.0, 300.0, 310.0, 345.0])
    caplog.set_level("INFO")
    with counting(100, done=10, clock=lambda: next(times)) as update:
        update(10)  # the model is being loaded: nothing to say
        update(20)
        update(55)  # 35 more in 35 s: one a second, and 45 are left
    assert caplog.messages == [
        "scored 20 of 100 responses",
        "scored 55 of 100 responses, 1 a second, about 45 s left",
    ]


def test_a_notebook_has_a_bar_though_it_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with counting(4) as update:
        update(4)
    assert capsys.readouterr().err == ""
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    with counting(4) as update:
        update(4)
    assert "4/4" in capsys.readouterr().err
