"""The root for audits: one `reward` section, and rows with or without references and labels."""

from __future__ import annotations

from dataclasses import dataclass, field

from rmrl.config.schema.fields import changeable, not_negative, positive, share
from rmrl.config.schema.reward import ClusterConfig, RewardConfig
from rmrl.config.schema.score import ScoreDataConfig, ScoreTrainerConfig


@dataclass(kw_only=True, slots=True)
class AuditSettings:
    budget_s: float = positive(120.0)
    """Seconds that the checks may take. The plan is printed before they start. A check that no
    seconds are left for is not measurable."""
    max_responses: int | None = positive(None)
    """Responses that may be scored, where each costs money. null: as many as the seconds allow."""
    rows: int = positive(60)
    """Rows to try each check on, fewer where the budget asks for it."""
    checks: list[str] = field(default_factory=list)
    """Checks to run: contract, repeatability, golden, mutations, shortcuts, agreement, pressure,
    cost, drift. Empty: all."""
    require: list[str] = field(default_factory=list)
    """Checks that must pass: one of them that is not measurable fails the audit."""
    label: str | None = None
    """Column with people's label: true or false, 1 or 0, or a number with `good_from`. A row with
    several responses has a list of them. null: no labels."""
    good_from: float | None = None
    """Labels are numbers, and those from here on are good. null: labels are true or false."""
    against: str | None = changeable(None)
    """An earlier audit.json, or its folder, for the check drift."""
    limit: float = share(0.05)
    """Share with a fault that a check still accepts. A check fails where the whole interval lies
    above it."""
    least_auc: float = share(0.5)
    """AUC on people's labels that the reward must exceed, with the whole interval."""
    most_s_per_1000: float = positive(600.0)
    """Seconds that 1,000 responses may take."""
    step_responses: int = positive(1024)
    """Responses in a training step, for its cost."""
    labelling_rows: int = not_negative(50)
    """Responses on the page for labelling, which is written where rows have no labels. 0: none."""
    confidence: float = share(0.95)
    """Coverage of the intervals."""
    seed: int = 1
    """Seed for rows, edits and the bootstrap."""


@dataclass(kw_only=True, slots=True)
class AuditConfig:
    data: ScoreDataConfig = field(default_factory=ScoreDataConfig)
    audit: AuditSettings = field(default_factory=AuditSettings)
    out: str | None = changeable(None)
    """Folder for audit.html, audit.json and reward.yaml, which replace earlier ones. null:
    runs/audit/<reward>."""
    reward: RewardConfig = field(default_factory=RewardConfig)
    trainer: ScoreTrainerConfig = field(default_factory=ScoreTrainerConfig)
    ray_kwargs: ClusterConfig = changeable(factory=ClusterConfig)
