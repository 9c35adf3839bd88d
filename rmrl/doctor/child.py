"""A function in its own process, with a deadline: what hangs or crashes there ends nothing here."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import psutil

from rmrl.cluster.process_tree import end_family, family_of
from rmrl.errors import RmrlError
from rmrl.registry import load_attribute

_MARK = "rmrl-doctor:"
_LAST_WORDS_S = 5.0


def run(
    function: str, *arguments: str, deadline_s: float, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Call "module:function" with the arguments and return its result, a mapping for JSON.

    `environment`: variables beside this process's. Raises RmrlError with one sentence where the
    process failed or did not answer within `deadline_s` seconds.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "rmrl.doctor.child", function, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**os.environ, **environment},
    )
    try:
        output, errors = process.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired as late:
        asyncio.run(end_family(family_of(psutil.Process(process.pid))))
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_LAST_WORDS_S)
        raise RmrlError(f"no answer within {deadline_s:.0f} s") from late
    for line in output.splitlines():
        if line.startswith(_MARK):
            return json.loads(line.removeprefix(_MARK))
    raise RmrlError(last_error(errors.splitlines(), code=process.returncode))


def last_error(lines: Sequence[str], *, code: int) -> str:
    """Return a traceback's last line, or the exit code where there is none."""
    for line in reversed(lines):
        if line.strip() and not line.startswith((" ", "\t", "[")):
            return line.strip()
    return f"exit code {code}"


def main(function: str, *arguments: str) -> None:
    """Print a function's result for the parent."""
    call: Any = load_attribute(function)
    print(_MARK + json.dumps(call(*arguments)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
