"""An audit's files: audit.json, audit.html, and reward.yaml with the audited section."""

from __future__ import annotations

import dataclasses
import json
import logging
from pathlib import Path
from typing import Any

import yaml

from rmrl.audit.check_audit import REPORT, CheckedAudit
from rmrl.audit.labelling import NAME, labelling_page
from rmrl.audit.page import page
from rmrl.audit.run_audit import Result
from rmrl.config.schema import RewardConfig
from rmrl.data.surrogates import escaped
from rmrl.errors import DataError
from rmrl.files import write_whole
from rmrl.rewards.calibration.audited import record

_log = logging.getLogger(__name__)

PAGE = "audit.html"
SECTION = "reward.yaml"


def write(checked: CheckedAudit, result: Result) -> None:
    """Write all files. Raises DataError where that fails."""
    out = checked.out
    try:
        out.mkdir(parents=True, exist_ok=True)
        report = json.dumps(_plain(result.as_json()), ensure_ascii=False, indent=1)
        write_whole(out / REPORT, escaped(report) + "\n")
        write_whole(out / PAGE, escaped(page(result)))
        if result.to_label:
            write_whole(out / NAME, escaped(labelling_page(result.label, result.to_label)))
            _log.info(f"no labels: label {len(result.to_label)} responses on {out / NAME}")
        write_whole(out / SECTION, section(checked, result))
    except OSError as error:
        raise DataError(f"{out} cannot be written ({error}); give another out=") from error
    _log.info(f"wrote {out / PAGE}, {REPORT} and {SECTION}; train with reward={out / SECTION}")


def section(checked: CheckedAudit, result: Result) -> str:
    """Return the section `reward` that was audited, without defaults, with the audit's record."""
    defaults = dataclasses.asdict(RewardConfig())
    typed = dataclasses.asdict(checked.config.reward)
    typed["audit"] = record(result.date, result.verdicts, checked.scoring.specs)
    changed = {key: value for key, value in typed.items() if value != defaults[key]}
    return yaml.safe_dump({"reward": _absolute(changed)}, sort_keys=False, allow_unicode=True)


def _absolute(reward: dict[str, Any]) -> dict[str, Any]:
    """Return the section with whole paths to the functions' files, so that it holds anywhere."""
    for entries in reward.get("specs", {}).values():
        function = entries.get("function") if isinstance(entries, dict) else None
        file, colon, name = str(function or "").partition(":")
        if file.endswith(".py"):
            entries["function"] = f"{Path(file).expanduser().resolve()}{colon}{name}"
    return reward


def _plain(value: Any) -> Any:
    """Return the value without numbers that JSON does not have."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return list(map(_plain, value))
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None
    return value
