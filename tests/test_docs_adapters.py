"""The code of docs/adapters.md runs as printed, block after block."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rmrl.adapters.shared import close_all

PAGE = Path(__file__).resolve().parent.parent / "docs" / "adapters.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def test_the_code_of_the_page_runs_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks that begin with the name of a file are files, the others one program."""
    monkeypatch.chdir(tmp_path)
    program: list[str] = []
    for language, code in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        name = re.fullmatch(r"# ([\w/]+\.\w+)", code.partition("\n")[0])
        if name is not None:
            file = tmp_path / name[1]
            file.parent.mkdir(exist_ok=True)
            file.write_text(code, encoding="utf-8")
            compile(code, name[1], "exec") if language == "python" else None
        elif language == "python":
            program.append(code)
    names: dict[str, Any] = {}
    try:
        for code in program:
            exec(compile(code, str(PAGE), "exec"), names)
    finally:
        close_all()
    assert len(program) == 3
