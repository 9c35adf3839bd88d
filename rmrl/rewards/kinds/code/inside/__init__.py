"""Program that runs in the sandbox; rmrl reads its files as one text and never imports them.

    <python> -c <text> tests                      job on standard input, verdicts on standard output
    <python> -c <text> program <job> <ready>      job on a descriptor; becomes the program itself
    <python> -c <text> candidate <in> <out>       the process of the code that is tested

Role `tests` is the tester: it holds the tests and the expected values and runs the candidate's code
in a process of its own, role `candidate`, which sees the arguments of calls and nothing else.
Results come back as plain data, so equality is decided by types of the tester alone. The tester
prints a line `<ready>` before it starts the candidate, and at the end a line `<code> <verdicts>`:
the verdicts as JSON, and their HMAC-SHA256 with the job's secret, so that no other line is taken
for them. The job is read before any code of the candidate runs.

The files use only the standard library of any Python from 3.10 on. Their imports of each other are
for type checkers, and are left out of the text.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

_FILES = ("values", "candidate", "link", "testcode", "tester", "main")
_FUTURE = "from __future__ import annotations"


@cache
def text() -> str:
    """Return the program."""
    lines = [_FUTURE]
    for name in _FILES:
        file = Path(__file__).with_name(f"{name}.py")
        in_import = False
        for line in file.read_text(encoding="utf-8").splitlines():
            if in_import:
                in_import = line != ")"
            elif line.startswith("from rmrl."):
                in_import = line.endswith("(")
            elif line != _FUTURE:
                lines.append(line)
    return "\n".join([*lines, ""])
