"""`rmrl report` as a user runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmrl.cli import main
from tests.report.samples import write_run


def test_a_run_gets_a_page_in_its_folder(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    assert main(["report", str(run)]) == 0
    assert (run / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize("flag", ["--out={}", "out={}"])
def test_two_runs_get_one_page(tmp_path: Path, flag: str) -> None:
    runs = [str(write_run(tmp_path / name)) for name in ("first", "second")]
    assert main(["report", *runs, flag.format(tmp_path / "both.html")]) == 0
    assert "<title>first and second</title>" in (tmp_path / "both.html").read_text()


def test_mistakes_are_sentences_with_their_codes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run")
    assert main(["report", str(tmp_path)]) == 6
    assert "holds no samples.jsonl" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "none.jsonl")]) == 6
    assert "none.jsonl does not exist; need" in capsys.readouterr().err
    assert main(["report", str(run), "--out", str(tmp_path / "none" / "page.html")]) == 6
    assert "give another --out" in capsys.readouterr().err
    assert main(["report", str(run), str(run), str(run)]) == 2
    assert "saw 3 runs or files" in capsys.readouterr().err
