"""Rewards that give a verdict on few responses or on none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.audit.auditing import audit, write_reward

NOTHING = """def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return None
"""
RECORDED = """def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return {"good one": 1.0, "bad one": 0.2}.get(solution_str)
"""


def golden(reward: Path, out: Path, *words: str) -> tuple[str, dict[str, Any]]:
    """The verdict of the check, and its findings by name."""
    _, report = audit(reward, out, *words, checks=["golden"])
    check = report["checks"]["golden"]
    return check["verdict"], {each["name"]: each for each in check["findings"]}


def test_a_reward_without_a_score_rejects_references_and_accepts_nothing(tmp_path: Path) -> None:
    verdict, findings = golden(write_reward(tmp_path, NOTHING), tmp_path / "out")
    assert verdict == "fail"
    assert findings["golden.references"]["verdict"] == "fail"
    assert findings["golden.references"]["found"].endswith("rejected: no response has a score")
    assert findings["golden.wrong"]["verdict"] == "pass"


def test_labelled_responses_are_the_golden_ones_where_no_form_is_read(tmp_path: Path) -> None:
    """Only rows behind the first sixteen have a right and a wrong response."""
    rows: list[dict[str, Any]] = []
    for number in range(24):
        texts = ["good one", "bad one" if number > 17 else "good one"]
        row = {
            "prompt": f"question {number}",
            "reward_model": {"ground_truth": f"{number}"},
            "responses": texts,
            "label": [text == "good one" for text in texts],
        }
        rows.append(row)
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    words = (f"data.files={data}", "label=label")
    verdict, findings = golden(write_reward(tmp_path, RECORDED), tmp_path / "out", *words)
    references = findings["golden.references"]
    assert (verdict, references["rows"], references["verdict"]) == ("pass", 6, "pass")
    assert references["tried"] == "responses that people labelled"
    empty = findings["golden.empty"]
    assert (empty["verdict"], empty["found"]) == (
        "not measurable",
        "none of 6 responses has a score",
    )


FORM_ALONE = """def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return float(solution_str.startswith("Final Answer:"))
"""


def test_a_reward_of_the_form_alone_is_shown_in_the_form_that_it_pays(tmp_path: Path) -> None:
    _, findings = golden(write_reward(tmp_path, FORM_ALONE), tmp_path / "out")
    assert findings["golden.wrong"]["found"].endswith("accepted: all scores are 1")
    assert findings["golden.wrong"]["examples"][0]["response"].startswith("Final Answer:")
