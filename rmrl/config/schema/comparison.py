"""The root of comparisons: rows with responses, scored by two `reward` sections."""

from __future__ import annotations

from dataclasses import dataclass, field

from rmrl.config.schema.fields import changeable, choice, not_negative, positive, share
from rmrl.config.schema.reward import ClusterConfig
from rmrl.config.schema.score import ScoreDataConfig, ScoreTrainerConfig


@dataclass(kw_only=True, slots=True)
class ComparisonConfig:
    label: str | None = None
    """Column with people's label: true or false, 1 or 0, or a number with `good_from`; a list of
    them where the row has several responses; null: no labels."""
    good_from: float | None = None
    """Labels are numbers, and those from here on are good; null: labels are true or false."""
    figure: str = choice("auto", among=("auto", "mean", "accuracy", "pairs", "best"))
    """Figure whose difference is tested: mean (of the reward), accuracy (share of responses that
    have a reward of at least `threshold` just where they are good), pairs (share of the pairs of a
    good and a bad response to one prompt in which the good one has the higher reward), best (share
    of prompts whose highest reward is that of a good response); auto: pairs or accuracy with
    labels, mean without."""
    threshold: float = 0.5
    """Least reward of a response that counts as accepted, for the figure accuracy."""
    rows: int = not_negative(20)
    """Number of responses to list among those on which the two disagree most."""
    characters: int = positive(300)
    """Characters of a listed text; longer ones lose their middle."""
    resamples: int = positive(2000)
    """Resamples of the bootstrap."""
    confidence: float = share(0.95)
    """Coverage of the intervals."""
    seed: int = 1
    """Seed of the bootstrap."""


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
