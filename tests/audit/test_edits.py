"""Edits of responses and prompts, forms by source, and paired tests, beside numbers by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rmrl.audit.checks.drift import mean_moved, verdicts_moved
from rmrl.audit.checks.mutations import options_turned
from rmrl.audit.goldens import FORMS
from rmrl.audit.made_rows import in_form
from rmrl.types import Prompt
from tests.audit.auditing import audit, write_reward

QUESTION = "Which is a metal?\nA) wood\nB) iron\nC) glass\nSay the letter."
BY_SOURCE = """
import re

FORMS = {"box": r"boxed\\{(.*?)\\}", "mark": r"#### *(-?\\d+)"}

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    found = re.findall(FORMS[data_source], solution_str) or re.findall(r"\\d+", solution_str)
    return float(found[-1:] == [ground_truth])
"""


def prompt(text: str, answer: str) -> Prompt:
    messages = [{"role": "user", "content": text}]
    return Prompt(id="p", messages=messages, token_ids=(), ground_truth=answer)


def test_options_move_on_by_one_letter_and_the_reference_with_them() -> None:
    turned = options_turned(prompt(QUESTION, "B"))
    assert turned is not None
    text = "Which is a metal?\nA) glass\nB) wood\nC) iron\nSay the letter."
    assert (turned.messages[-1]["content"], turned.ground_truth) == (text, "C")
    last = options_turned(prompt(QUESTION, "C"))
    assert last is not None
    assert last.ground_truth == "A"
    assert options_turned(prompt(QUESTION, "iron")) is None
    assert options_turned(prompt("How many?\nA) one", "A")) is None


def test_a_made_reasoning_takes_the_place_of_the_one_in_the_form() -> None:
    made = ("From 2 and 3 we get 5.\n#### 5",)
    inside = "<think>\nFrom 2 and 3 we get 5.\n</think>\n<answer>\n5\n</answer>"
    assert in_form(made, FORMS["thinking and tag"]) == (inside,)
    assert in_form(made, FORMS["tag"]) == ("From 2 and 3 we get 5.\n<answer>5</answer>",)


def test_each_source_of_rows_has_its_own_form_and_a_fallback_is_not_blamed(tmp_path: Path) -> None:
    rows = [
        {"prompt": f"{n}?", "data_source": source, "ground_truth": str(n), "response": f"{n}"}
        for source, numbers in (("box", range(11, 23)), ("mark", range(31, 43)))
        for n in numbers
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    reward = write_reward(tmp_path, BY_SOURCE)
    checks = ["contract", "golden", "mutations"]
    _, report = audit(reward, tmp_path / "out", f"data.files={path}", checks=checks)
    findings = [each for check in report["checks"].values() for each in check["findings"]]
    named = {each["name"]: each for each in findings}
    assert "best: #### and boxed" in named["golden.references"]["tried"]
    remark = named["mutations.remark with numbers behind"]
    assert (remark["verdict"], remark["rows"]) == ("pass", 24)
    assert named["mutations.options"]["verdict"] == "not measurable"
    assert named["contract.none"]["verdict"] == "note"
    assert "TypeError" in named["contract.none"]["found"]


def test_a_judge_has_drifted_where_paired_tests_say_so() -> None:
    prompts_T = np.arange(10)
    before_T = np.linspace(0.1, 1.0, 10)
    level = 0.025
    same = (np.stack([before_T, before_T]), prompts_T)
    lower = (np.stack([before_T, before_T - 0.1]), prompts_T)
    assert mean_moved(same, level).verdict == "pass"
    finding = mean_moved(lower, level)
    assert (finding.verdict, finding.value) == ("fail", pytest.approx(-0.1))
    # 7 of 7 to one side have p = 2 / 2^7 = 0.016, 6 of 6 have 0.031.
    for flips, verdict in ((7, "fail"), (6, "pass")):
        after_T = np.where(np.arange(10) < flips, 0.0, 1.0)
        terms = (np.stack([np.ones(10), after_T]), prompts_T)
        finding = verdicts_moved(terms, level, 0.5)
        assert (finding.verdict, finding.power) == (verdict, "7 to one side")
