"""The rows in a JSON file as texts: its lines or, where a .json file holds one list, its entries. A
file that ends in .gz is unpacked while it is read."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TextIO

from rmrl.data.problems import shown
from rmrl.errors import DataError
from rmrl.files import GZIP_SUFFIX, open_text

UNREADABLE = (OSError, EOFError, zlib.error)
"""Errors of a file that is not there, not whole, or not packed as its name says."""
_DECODER = json.JSONDecoder()
_GAP = re.compile(r"[\s,]*")
_HEAD_CHARACTERS = 64
_READ_CHARACTERS = 2**20


def json_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line on which each row begins, 1 is the first, and its text. A byte that is not
    UTF-8 becomes a lone surrogate. Raises one of UNREADABLE, DataError for a list that breaks
    off."""
    with open_text(path) as file:
        head = file.read(_HEAD_CHARACTERS)
        name = path.name.removesuffix(GZIP_SUFFIX)
        if name.endswith(".json") and head.lstrip().startswith("["):
            yield from _entries(file, head, path)
            return
        file.seek(0)
        for line, text in enumerate(file, start=1):
            if text.strip():
                yield line, text


def _entries(file: TextIO, text: str, path: Path) -> Iterator[tuple[int, str]]:
    """Yield a list's entries. `text`: the file's beginning, which was read already."""
    at = text.index("[") + 1
    line = 1 + text.count("\n", 0, at)
    more = text
    size = _READ_CHARACTERS
    while True:
        gap = _GAP.match(text, at)
        assert gap is not None
        line += text.count("\n", at, gap.end())
        at = gap.end()
        if text.startswith("]", at):
            for rest in chain([text[at + 1 :]], file):
                if rest.strip():
                    raise DataError(
                        f"{path} line {line}: saw {shown(rest.strip()[:80])} behind the list; need"
                        " one list; give several as files of their own, or one row per line"
                    )
            return
        problem = "it breaks off"
        end = None
        try:
            _, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            problem = str(error)
        # At the end of what was read a number may go on.
        if end is not None and (end < len(text) or not more):
            yield line, text[at:end]
            line += text.count("\n", at, end)
            at = end
            size = _READ_CHARACTERS
            continue
        if not more:
            raise DataError(
                f"{path} line {line}: saw {shown(text[at : at + 80])}, which is no entry of a JSON"
                f" list ({problem}); need a list that ends in ]; write or copy the file again"
            )
        more = file.read(size)
        text = text[at:] + more
        at = 0
        size *= 2
