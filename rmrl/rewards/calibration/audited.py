"""An audit's record in a section `reward`: when it was, what it found, and for which rewards.

`rmrl audit` writes it as `reward.audit`; training and serving compare it with today's rewards.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from rmrl.config.schema import RewardConfig
from rmrl.rewards.calibration.digest import differing_parts, reward_digest
from rmrl.rewards.specs.spec import RewardSpec

_log = logging.getLogger(__name__)


def record(date: str, verdicts: Mapping[str, str], specs: Sequence[RewardSpec]) -> dict[str, Any]:
    """Return what `reward.audit` holds. Raises ConfigError as `reward_digest` does."""
    digests = {spec.name: reward_digest(spec, specs) for spec in specs if not spec.part_of}
    return {"date": date, "verdicts": dict(verdicts), "digests": digests}


def changed(reward: RewardConfig, specs: Sequence[RewardSpec]) -> list[str]:
    """Return a sentence for each reward that is another one than at its audit, or was not
    audited."""
    digests = reward.audit.get("digests") or {}
    sentences: list[str] = []
    for spec in specs:
        if spec.part_of:
            continue
        if spec.name not in digests:
            sentences.append(f"reward '{spec.name}' was not audited")
            continue
        parts = differing_parts(digests[spec.name], reward_digest(spec, specs))
        if parts:
            sentences.append(
                f"reward '{spec.name}' has changed since its audit: {' and '.join(parts)}"
            )
    return sentences


def report_audits(reward: RewardConfig, specs: Sequence[RewardSpec]) -> None:
    """Log a section's audit, if it has one, and what has changed since."""
    if not reward.audit:
        return
    verdicts = reward.audit.get("verdicts") or {}
    failed = [name for name, verdict in verdicts.items() if verdict == "fail"]
    result = f"failed: {', '.join(failed)}" if failed else "nothing failed"
    names = ", ".join(spec.name for spec in specs if not spec.part_of)
    _log.info(f"{names}: audited on {reward.audit.get('date', 'an unknown day')}, {result}")
    for sentence in changed(reward, specs):
        _log.warning(f"{sentence}; audit it again: rmrl audit")


def required(reward: RewardConfig, specs: Sequence[RewardSpec]) -> list[str]:
    """Return problems with trainer.require_audit: no audit, a failed one, or a change since."""
    key = "trainer.require_audit"
    if not reward.audit:
        return [
            f"{key}: the section reward has no audit; run rmrl audit, and train with the file"
            " reward.yaml that it writes: reward=runs/audit/reward.yaml"
        ]
    problems = [f"{key}: {sentence}; audit it again" for sentence in changed(reward, specs)]
    for name, verdict in (reward.audit.get("verdicts") or {}).items():
        if verdict == "fail":
            problems.append(
                f"{key}: the check {name} failed; correct the reward, and audit it again"
            )
    return problems
