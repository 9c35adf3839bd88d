"""The root for comparisons: rows with responses, scored by two `reward` sections."""

from __future__ import annotations

from dataclasses import dataclass, field

from rmrl.config.schema.fields import changeable, choice, not_negative, positive, share
from rmrl.config.schema.reward import ClusterConfig
from rmrl.config.schema.score import ScoreDataConfig, ScoreTrainerConfig


@dataclass(kw_only=True, slots=True)
class ComparisonConfig:
    label: str | None = None
    """Column with people's label: true or false, 1 or 0, or a number with `good_from`. A row with
    several responses has a list of labels. null: no labels."""
    good_from: float | None = None
    """Labels are numbers, and a label from this number on is good. null: labels are true or
    false."""
    figure: str = choice("auto", among=("auto", "mean", "accuracy", "pairs", "best"))
    """Figure whose difference is tested. mean: the mean reward. accuracy: the share of responses
    whose reward reaches `threshold` exactly where the response is good. pairs: the share of pairs
    (a good and a bad response to one prompt) in which the good response has the higher reward.
    best: the share of prompts whose highest reward belongs to a good response. auto: pairs or
    accuracy with labels, mean without."""
    threshold: float = 0.5
    """Least reward with which a response counts as accepted, for the figure accuracy."""
    rows: int = not_negative(20)
    """Number of responses to list, the largest disagreements between the two rewards first."""
    characters: int = positive(300)
    """Longest listed text in characters. Longer texts lose their middle."""
    resamples: int = positive(2000)
    """Number of bootstrap resamples."""
    confidence: float = share(0.95)
    """Coverage of the intervals."""
    seed: int = 1
    """Seed for the bootstrap."""


@dataclass(kw_only=True, slots=True)
class CompareConfig:
    data: ScoreDataConfig = field(default_factory=ScoreDataConfig)
    compare: ComparisonConfig = field(default_factory=ComparisonConfig)
    out: str | None = changeable(None)
    """Folder for the report and the scores of both."""
    overwrite: bool = changeable(False)
    """Replace the scores that another command left in `out`."""
    over_budget: str = choice("warn", among=("warn", "fail"), may_change=True)
    """When more verdicts are missing than `reward.max_missing` allows: warn or fail (exit code
    3)."""
    trainer: ScoreTrainerConfig = field(default_factory=ScoreTrainerConfig)
    ray_kwargs: ClusterConfig = changeable(factory=ClusterConfig)
