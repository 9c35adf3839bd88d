"""The table by which slow test files are ordered holds every file."""

from __future__ import annotations

import json
from pathlib import Path

from scripts import slow_seconds


def test_every_slow_file_is_in_the_table():
    recorded = json.loads(slow_seconds.RECORDED.read_text(encoding="utf-8"))
    advice = "python scripts/slow_seconds.py adds a new file and drops one that is gone"
    assert sorted(recorded) == slow_seconds.test_files(), advice


def test_seconds_of_a_report_are_summed_by_file(tmp_path: Path):
    (tmp_path / "report.xml").write_text(
        """<testsuites><testsuite>
        <testcase file="tests/slow/serve/test_process.py" name="a" time="1.5"/>
        <testcase file="tests/slow/serve/test_process.py" name="b" time="2.0"/>
        <testcase file="tests/serve/test_run.py" name="c" time="9.0"/>
        </testsuite></testsuites>"""
    )
    assert slow_seconds.seconds_of(tmp_path / "report.xml") == {"serve/test_process.py": 3.5}
