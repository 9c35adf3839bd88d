"""Rows of the columns that trainers hand over."""

from __future__ import annotations

from rmrl.data.trainer_rows import row_of


def test_an_entry_of_extra_info_stays_whatever_the_order_of_columns() -> None:
    columns = {"level": 1, "extra_info": {"level": 2, "answer": "own"}, "answer": "4"}
    for names in (list(columns), list(reversed(columns))):
        row = row_of("p", "r", {name: columns[name] for name in names})
        assert row["extra_info"] == {"level": 2, "answer": "own"}
        assert row["ground_truth"] == "4"
    both = row_of("p", "r", {"extra_info": {"solution": "own"}, "answer": "4", "solution": "5"})
    assert both["extra_info"] == {"solution": "own"}
