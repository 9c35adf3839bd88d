"""The root for calibration: rows with people's labels, and the `reward` section whose scores are
mapped to probabilities."""

from __future__ import annotations

from dataclasses import dataclass, field

from rmrl.config.schema.fields import changeable, choice, positive, share
from rmrl.config.schema.reward import ClusterConfig, RewardConfig
from rmrl.config.schema.score import ScoreDataConfig, ScoreTrainerConfig


@dataclass(kw_only=True, slots=True)
class CalibrationConfig:
    label: str = "label"
    """Column with people's label: true or false, 1 or 0, or a number with `good_from`. A row with
    several responses has a list of labels. Rows without a label have their share of good responses
    estimated."""
    good_from: float | None = None
    """Labels are numbers, and a label from this number on is good. null: labels are true or
    false."""
    scored: bool = False
    """The rows hold the scores already: columns score_<name>, as `rmrl score` writes them with this
    `reward` section."""
    method: str = choice("isotonic", among=("isotonic", "platt"))
    """Kind of map: isotonic (any map that does not fall, from some hundred labels on) or platt (a
    sigmoid, two parameters)."""
    threshold: float | None = None
    """P(good) from which the reward's verdict is good, for sensitivity and specificity. null: the
    share of good labels."""
    bins: int = positive(10)
    """Bins in the reliability curve."""
    confidence: float = share(0.95)
    """Coverage of the intervals."""
    seed: int = 1
    """Seed for the cross-validation folds."""


@dataclass(kw_only=True, slots=True)
class CalibrateConfig:
    data: ScoreDataConfig = field(default_factory=ScoreDataConfig)
    calibrate: CalibrationConfig = field(default_factory=CalibrationConfig)
    out: str | None = changeable(None)
    """Folder for the maps, <reward>.json, and the scores."""
    overwrite: bool = changeable(False)
    """Replace the scores that another command left in `out`."""
    over_budget: str = choice("warn", among=("warn", "fail"), may_change=True)
    """When more verdicts are missing than `reward.max_missing` allows: warn or fail (exit code
    3)."""
    reward: RewardConfig = field(default_factory=RewardConfig)
    trainer: ScoreTrainerConfig = field(default_factory=ScoreTrainerConfig)
    ray_kwargs: ClusterConfig = changeable(factory=ClusterConfig)
