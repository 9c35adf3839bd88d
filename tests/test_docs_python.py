"""The code of docs/python.md runs as printed, block after block."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).resolve().parent.parent / "docs" / "python.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def test_the_code_of_the_page_runs_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks that begin with the name of a file are files, the others one program."""
    monkeypatch.chdir(tmp_path)
    program = []
    for _, code in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        name = re.fullmatch(r"# ([\w/]+\.\w+)", code.partition("\n")[0])
        if name is None:
            program.append(code)
            continue
        file = tmp_path / name[1]
        file.parent.mkdir(exist_ok=True)
        file.write_text(code, encoding="utf-8")
    names: dict[str, Any] = {"__name__": "__main__"}  # as in a notebook
    for code in program:
        exec(compile(code, str(PAGE), "exec"), names)
    assert len(program) == 7
    assert names["scored"]["status_gsm8k"].tolist() == ["ok", "ok"]
