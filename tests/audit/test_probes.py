"""Every check fails on the fault that it ships with, and a sound reward passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmrl.audit.checks import CHECKS, IN_ORDER
from rmrl.config.load import compose_config, shipped
from rmrl.config.schema import ScoreConfig
from rmrl.offline.check_scoring import check_scoring
from rmrl.rewards.calibration import audited
from tests.audit.auditing import audit, write_reward

SOUND = """
import re

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    numbers = re.findall(r"####\\s*(-?[\\d,]+(?:\\.\\d+)?)", solution_str)
    if not numbers:
        return 0.0
    return float(float(numbers[-1].replace(",", "")) == float(ground_truth))
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


def test_a_sound_reward_passes_and_its_file_says_so_until_it_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    reward = write_reward(tmp_path, SOUND)
    code, report = audit(reward, tmp_path / "first")
    table = capsys.readouterr().out
    verdicts = {name: check["verdict"] for name, check in report["checks"].items()}
    assert code == 0, table
    assert tuple(verdicts) == IN_ORDER
    assert verdicts.pop("drift") == "not measurable"
    assert set(verdicts.values()) == {"pass"}
    assert max(map(len, table.splitlines())) <= 100
    assert "<script" not in (tmp_path / "first" / "audit.html").read_text()

    words = [f"reward={tmp_path / 'first' / 'reward.yaml'}", "data.files=rows.jsonl"]
    config = compose_config(words, ScoreConfig)
    assert config.reward.audit["verdicts"]["golden"] == "pass"

    def specs() -> Any:
        return check_scoring(
            config,
            shipped_functions=shipped("reward_functions"),
            needs_out=False,
            needs_files=False,
        ).specs

    config.data.files = None
    audited.report_audits(config.reward, specs())
    assert caplog.messages[-1].startswith("planted: audited on 20")
    assert audited.required(config.reward, specs()) == []
    reward.write_text(SOUND.replace("0.0", "0.1"))
    (problem,) = audited.required(config.reward, specs())
    assert "reward 'planted' has changed since its audit: the code" in problem
    config.reward.audit = {}
    (problem,) = audited.required(config.reward, specs())
    assert "has no audit" in problem


def test_a_check_that_cannot_fail_is_no_pass(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "Say hello.", "response": "hello"}\n' * 3)
    reward = write_reward(
        tmp_path,
        "def compute_score(solution_str, **kwargs):\n    return float(len(solution_str))\n",
    )
    checks = ["golden", "mutations", "agreement", "pressure"]
    code, report = audit(reward, tmp_path / "out", f"data.files={rows}", checks=checks)
    assert code == 0
    assert {check["verdict"] for check in report["checks"].values()} == {"not measurable"}
    assert '"prompt":"Say hello."' in (tmp_path / "out" / "labelling.html").read_text()
    words = [f"data.files={rows}"]
    code, _ = audit(reward, tmp_path / "out", *words, checks=["golden"], require=["golden"])
    assert code == 1


def test_what_cannot_run_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from rmrl.cli import main

    assert main(["audit", str(tmp_path / "none.py"), f"out={tmp_path}"]) == 2
    assert main(["audit", "audit.checks=[goldn]"]) == 2
    assert "did you mean 'golden'" in capsys.readouterr().err
