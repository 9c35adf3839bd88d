"""What rules print goes to a file per reward, its first lines to the console."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmrl.logs import command_log, write_to
from rmrl.rewards.dropins.dropin import FunctionSource
from rmrl.rewards.kinds.rule.pool import RulePool
from tests.patience import PATIENCE_S
from tests.patience import expires

PRINTS = """
import os, sys, time
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    print("saw", solution_str)
    if solution_str == "child":
        os.system("echo from a child")
    if solution_str == "hang":
        time.sleep(1e6)
    return 1.0
"""


@pytest.fixture
def rule(tmp_path: Path) -> FunctionSource:
    path = tmp_path / "talks.py"
    path.write_text(PRINTS)
    return FunctionSource(str(path))


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    with command_log():
        write_to(tmp_path / "scored.jsonl.log")
        yield tmp_path / "scored.jsonl.prints"


def call(
    pool: RulePool, rule: FunctionSource, name: str, *said: str, timeout_s: float = PATIENCE_S
) -> list[str]:
    calls = [{"data_source": "", "solution_str": text, "ground_truth": ""} for text in said]
    results = pool.submit(rule, calls, timeout_s, name).result(2 * PATIENCE_S)
    return [result.status for result in results]


def test_prints_of_a_rule_go_to_a_file_and_their_first_lines_to_the_console(
    rule: FunctionSource, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with RulePool(1) as pool:
        assert call(pool, rule, "a/b", "1", "2", "child\x1b[2J", "child") == ["ok"] * 4
        call(pool, rule, "other", "5")
        call(pool, rule, "a/b", "6")
    lines = ["saw 1", "saw 2", "saw child\x1b[2J", "saw child", "from a child", "saw 6"]
    assert (log / "a%2Fb.log").read_text().splitlines() == lines
    assert (log / "other.log").read_text() == "saw 5\n"
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        "[rmrl] reward 'a/b' prints: saw 1",
        "[rmrl] reward 'a/b' prints: saw 2",
        "[rmrl] reward 'a/b' prints: saw child\ufffd[2J",
        f"[rmrl] reward 'a/b' prints more, see {log / 'a%2Fb.log'}",
        "[rmrl] reward 'other' prints: saw 5",
    ]


def test_prints_of_killed_workers_and_of_forked_ones_are_kept(
    rule: FunctionSource, log: Path
) -> None:
    with RulePool(1) as pool:
        for number in range(4):  # from the third on workers are forked
            assert call(pool, rule, "a", f"{number}", "hang", timeout_s=expires(1.0)) == ["ok", "timeout"]
    lines = [line for number in range(4) for line in (f"saw {number}", "saw hang")]
    assert (log / "a.log").read_text().splitlines() == lines


def test_without_a_log_prints_reach_standard_error(
    rule: FunctionSource, capsys: pytest.CaptureFixture[str]
) -> None:
    with RulePool(1) as pool:
        call(pool, rule, "a", "1")
    assert capsys.readouterr() == ("", "saw 1\n")
