"""Every check fails on the fault that it ships with, and on a sound reward it does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmrl.audit.checks import CHECKS
from tests.audit.auditing import audit, write_reward

SOUND = """
import re

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    found = re.findall(r"####\\s*(-?[\\d,]+(?:\\.\\d+)?)", solution_str)
    if not found:
        return 0.0
    return float(float(found[-1].replace(",", "")) == float(ground_truth))
"""


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_fails_on_its_probe(name: str, tmp_path: Path) -> None:
    probe = CHECKS[name].probe
    settings: dict[str, Any] = dict(probe.settings)
    if probe.before:
        audit(write_reward(tmp_path, probe.before), tmp_path / "before", checks=[name])
        settings["against"] = str(tmp_path / "before" / "audit.json")
    code, report = audit(
        write_reward(tmp_path, probe.code), tmp_path / "out", checks=[name], **settings
    )
    assert (code, report["checks"][name]["verdict"]) == (1, "fail")
    failed = [each for each in report["checks"][name]["findings"] if each["verdict"] == "fail"]
    assert all(each["found"] and each["tried"] for each in failed)


def test_a_sound_reward_passes_every_check(tmp_path: Path) -> None:
    reward = write_reward(tmp_path, SOUND)
    code, first = audit(reward, tmp_path / "first")
    assert code == 0, json.dumps(first["checks"], indent=1)
    verdicts = {name: check["verdict"] for name, check in first["checks"].items()}
    assert verdicts.pop("drift") == "not measurable"
    assert set(verdicts.values()) == {"pass"}
    against = str(tmp_path / "first")
    code, again = audit(reward, tmp_path / "again", checks=["drift"], against=against)
    assert (code, again["checks"]["drift"]["verdict"]) == (0, "pass")
