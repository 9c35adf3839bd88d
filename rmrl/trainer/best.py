"""The step with the best validation: its checkpoint stays, and a run may stop after it.

A reward that trains the policy rises while what it stands for falls (Gao et al.,
arXiv:2210.10760). A metric that nothing trains on, such as a watcher's, says when.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmrl.config.schema import Config, TrainerConfig
from rmrl.registry import did_you_mean
from rmrl.telemetry import names
from rmrl.types import Metrics

_log = logging.getLogger(__name__)

_REWARD = f"{names.VALIDATION}reward"


@dataclass(slots=True, kw_only=True)
class Best:
    """The best validation so far."""

    by: str | None
    """Metric, larger is better. None: no validation is best."""
    early_stop: int | None = None
    """Validations without a better one that end the run. None: none do."""
    step: int = -1
    """-1: there is none yet."""
    value: float = 0.0
    without_gain: int = 0
    """Validations since then."""

    @classmethod
    def of(cls, trainer: TrainerConfig) -> Best:
        """Return a run's, before its first validation. early_stop alone compares the reward."""
        by = trainer.best_by
        if by is None and trainer.early_stop is not None:
            by = _REWARD
        return cls(by=by, early_stop=trainer.early_stop)

    def observe(self, step: int, metrics: Mapping[str, float]) -> Metrics:
        """Note a validation. Return further metrics: the best step and its value."""
        if self.by is None:
            return {}
        value = metrics.get(self.by)
        if value is None:
            measured = ", ".join(name for name in metrics if name.startswith(names.VALIDATION))
            _log.warning(
                f"step {step}: trainer.best_by={self.by} was not measured; measured: {measured}"
            )
        elif self.step < 0 or value > self.value:
            self.step, self.value, self.without_gain = step, value, 0
            _log.info(f"step {step} has the best {self.by} so far: {value:.4g}")
        else:
            self.without_gain += 1
            if self.stops:
                _log.info(
                    f"step {step} ends the run: {self.without_gain} validations since step"
                    f" {self.step} had no better {self.by} than {self.value:.4g}"
                )
        if self.step < 0:
            return {}
        return {f"{names.BEST}step": float(self.step), names.BEST + self.by: self.value}

    @property
    def stops(self) -> bool:
        """Whether early_stop ends the run."""
        return self.early_stop is not None and self.without_gain >= self.early_stop

    def state_dict(self) -> dict[str, Any]:
        """Return the state for checkpoints."""
        return {
            "by": self.by,
            "step": self.step,
            "value": self.value,
            "without_gain": self.without_gain,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint's state, unless it is about another metric."""
        if self.by is not None and state.get("by") == self.by:
            self.step = state["step"]
            self.value = state["value"]
            self.without_gain = state["without_gain"]


def stopped_early(config: Config, folder: Path) -> bool:
    """Return whether early_stop ended the run with the checkpoint in this folder."""
    best = Best.of(config.trainer)
    with suppress(OSError, ValueError):
        state = json.loads((folder / "trainer.json").read_bytes())
        best.load_state_dict(state.get("best", {}))
    return best.stops


def best_problems(config: Config, components: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each setting that finds no best validation. `components`: the names of
    the rewards."""
    by = Best.of(config.trainer).by
    if by is None:
        return
    if config.trainer.test_freq < 1:
        yield (
            f"trainer.best_by={by} is measured by validations, and there are none: give"
            " trainer.test_freq=20 and data.val_files"
        )
    measured = ("reward", "length", *components)
    # val/<name>, val/<data_source>/<name>, and what stands below them
    if not by.startswith(names.VALIDATION) or not any(f"/{name}/" in f"{by}/" for name in measured):
        known = [f"{names.VALIDATION}{name}" for name in measured]
        yield f"trainer.best_by={by}: no validation measures this{did_you_mean(by, known)}"
