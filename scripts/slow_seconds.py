"""Write tests/slow/seconds.json, by which the files that take longest are run first.

    make test-all               (its slow tests leave build/slow.xml)
    python scripts/slow_seconds.py build/slow.xml

A file that the report lacks keeps its seconds; one that is gone loses them.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

SLOW = Path(__file__).resolve().parent.parent / "tests" / "slow"
RECORDED = SLOW / "seconds.json"
GUESS_S = 10.0
"""Of a file that no report has named yet."""


def seconds_of(report: Path) -> dict[str, float]:
    """Seconds by file below tests/slow, of a report that pytest wrote with junit_family=xunit1."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for case in ElementTree.parse(report).iter("testcase"):
        file = Path(case.attrib["file"])
        if file.parts[:2] == ("tests", "slow"):
            seconds[Path(*file.parts[2:]).as_posix()] += float(case.attrib["time"])
    return dict(seconds)


def test_files() -> list[str]:
    """Names of the slow test files, by their place below tests/slow."""
    return sorted(path.relative_to(SLOW).as_posix() for path in SLOW.rglob("test_*.py"))


def main() -> None:
    """Write the table, with the seconds of each report that the command line names."""
    known = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {}
    for report in sys.argv[1:]:
        known.update(seconds_of(Path(report)))
    table = {file: round(known.get(file, GUESS_S)) for file in test_files()}
    RECORDED.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
