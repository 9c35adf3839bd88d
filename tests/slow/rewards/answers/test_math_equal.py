"""Mathematical equality over the whole of math-verify's own table."""

from __future__ import annotations

from tests.rewards.answers.test_math_equal import NEWLINES, differing, table


def test_agrees_with_the_table_of_math_verify_in_all_but_two_rows():
    rows = table()
    assert differing(rows) == NEWLINES & {row["id"] for row in rows}
