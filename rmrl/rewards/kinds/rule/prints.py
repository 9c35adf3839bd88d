"""What rules print: all of it in a file per reward beside the log of the command, the first lines
on the console."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections import Counter
from contextlib import suppress
from urllib.parse import quote

from rmrl.logs import run_file

_log = logging.getLogger(__name__)

MARK = "\0"
"""`rule.worker` writes it before the name of the reward that prints next."""
SHOWN = 3
"""Lines per reward for the console."""
_LONGEST = 200
"""Characters per line on the console."""
_END_WAIT_S = 5.0
_shown: Counter[tuple[str, str]] = Counter()
"""Lines per file and reward."""


class Prints:
    """One worker's output, read by its own thread until the worker has ended."""

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()
        """`writing` is the worker's standard output; close it when the worker has it."""
        self._thread = threading.Thread(target=self._read, name="rmrl-rule-prints", daemon=True)
        self._thread.start()

    def reading(self) -> bool:
        """Whether more may come."""
        return self._thread.is_alive()

    def finish(self) -> None:
        """Wait until all is written that an ended worker has printed."""
        self._thread.join(_END_WAIT_S)

    def _read(self) -> None:
        name = ""
        with os.fdopen(self._reading, encoding="utf-8", errors="replace", newline="\n") as lines:
            for line in lines:
                text, mark, following = line.rstrip("\n").partition(MARK)
                if text or not mark:
                    keep(name, text)
                if mark:
                    name = following


def keep(name: str, line: str) -> None:
    """Write one line that the reward `name` printed. It goes to standard error where the command
    has no log, as in `rmrl check` and in Python."""
    log = run_file()
    if log is not None:
        folder = log.with_suffix(".prints")
        path = folder / f"{quote(name, safe='')}.log"
        with suppress(OSError):
            folder.mkdir(exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
            count = _shown[str(folder), name]
            _shown[str(folder), name] = count + 1
            if count < SHOWN:
                visible = [c if c.isprintable() else "\ufffd" for c in line[:_LONGEST]]
                _log.info(f"reward '{name}' prints: {''.join(visible)}")
            elif count == SHOWN:
                _log.info(f"reward '{name}' prints more, see {path}")
            return
    sys.stderr.write(f"{line}\n")
