"""What a rule does to its own process and its arguments stays without effect on other verdicts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rmrl.rewards.dropins.dropin import FunctionSource
from rmrl.rewards.kinds.rule.pool import RulePool
from rmrl.rewards.kinds.rule.reward import RuleReward
from rmrl.types import ScoreItem
from tests.patience import PATIENCE_S
from tests.rewards.kinds.rule.rule_parts import alive, wait_until

FORKS = """
import os, sys

def compute_score(data_source, solution_str, ground_truth):
    if os.fork() == 0:
        {child}
    return 1.0
"""


def scores(path: Path, *, prompt_ids: str, **settings: bool) -> list[float | None]:
    items = [
        ScoreItem(
            prompt_id=name,
            messages=({"role": "user", "content": "p"},),
            response=str(i),
            rm_prompt="",
            ground_truth="g",
            extra_info={"box": []},
        )
        for i, name in enumerate(prompt_ids)
    ]
    with RulePool(1) as pool:
        reward = RuleReward(
            "mine", FunctionSource(str(path)), pool=pool, timeout_s=PATIENCE_S, **settings
        )
        return [result.value for result in asyncio.run(reward.score(items))]


@pytest.mark.parametrize("child", ["return 0.0", "sys.exit(0)", "raise ValueError"])
def test_a_child_that_a_rule_forked_does_not_answer(tmp_path: Path, child: str) -> None:
    """Its answers were taken for those of the next rows: 1, 0, 0."""
    path = tmp_path / "forks.py"
    path.write_text(FORKS.format(child=child))
    assert scores(path, prompt_ids="abc") == [1.0, 1.0, 1.0]


def test_one_by_one_a_rule_gets_its_arguments_as_they_came(tmp_path: Path) -> None:
    """The call with the whole group changes a column of each row and raises; the calls for each
    row find one entry of their own, where they found two."""
    path = tmp_path / "changes.py"
    path.write_text(
        "def compute_score(prompts, completions, box, **columns):\n"
        "    for each in box: each.append(1)\n"
        "    if len(completions) > 1: raise RuntimeError('for one only')\n"
        "    return [float(len(box[0]))]\n"
    )
    assert scores(path, prompt_ids="aa", groups=True) == [1.0, 1.0]


DETACHES = """
import pathlib, subprocess, sys

LEAVES = "import subprocess; print(subprocess.Popen(['sleep', '1000000'],"
LEAVES += " start_new_session=True, stdout=-3, stderr=-3).pid)"

def compute_score(data_source, solution_str, ground_truth):
    line = [sys.executable, "-c", LEAVES]
    left = subprocess.run(line, start_new_session=True, capture_output=True).stdout
    child = subprocess.Popen(["sleep", "1000000"], start_new_session=True)
    pathlib.Path(NOTE).write_text(f"{child.pid} {int(left)}")
    return 1.0
"""


def test_detached_processes_of_a_rule_end_with_it(tmp_path: Path) -> None:
    """One in a session of its own, and one whose parent has left it: they held the output of the
    command open after its end."""
    note = tmp_path / "pids"
    path = tmp_path / "detaches.py"
    path.write_text(f"NOTE = {str(note)!r}\n{DETACHES}")
    assert scores(path, prompt_ids="a") == [1.0]
    first, second = map(int, note.read_text().split())
    assert wait_until(lambda: not alive(first) and not alive(second))
