"""A run's steps: update, validate, choose the best weights, save, go on after a kill."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rmrl.errors import CheckpointError, Interrupted, RewardError
from rmrl.reward_training.check_reward_training import CheckedRewardTraining
from rmrl.reward_training.labelled_batch import Item
from rmrl.reward_training.process_group import ProcessGroup
from rmrl.telemetry.names import STEP_TIME
from rmrl.telemetry.sinks import Sinks
from rmrl.trainer import checkpoint
from rmrl.trainer.saves import Saves
from rmrl.types import Metrics

_log = logging.getLogger(__name__)

BEST = "best"
LAST = "last"
CHECKPOINTS = "checkpoints"
ADAPTER = "adapter"
"""The adapter, within the folder of the merged model."""
_ENGINE = "model"
_STATE = "trainer.json"
_ON_CONSOLE = ("accuracy", "length_matched", "loss")
"""Held-out figures that a line on the console has room for."""
_SMALLER_IS_BETTER = frozenset({"loss", "brier"})

Outputs = list[list[list[float]]]
"""Per held-out row each response's outputs, as its `Reading` has them."""


@dataclass(slots=True, kw_only=True)
class State:
    """What a resumed run needs beside the engine's own state."""

    step: int = 0
    rows: str = ""
    """`Split.digest` of the rows that it was trained on."""
    untrained: Outputs = field(default_factory=list)
    """Outputs of the held-out rows before the first step."""
    best: Outputs = field(default_factory=list)
    best_step: int = -1
    best_figures: dict[str, float] = field(default_factory=dict)
    last_figures: dict[str, float] = field(default_factory=dict)
    without_gain: int = 0
    """Validations since the best one."""
    seconds: float = 0.0
    tokens: int = 0
    skipped: int = 0
    """Steps whose update was left out because a gradient was not finite."""
    peak_bytes: int = 0

    def is_better(self, figures: Mapping[str, float], by: str) -> bool:
        """Return whether held-out figures are the best so far, by the one named `by`. Every figure
        is better than NaN."""
        before = self.best_figures.get(by, math.nan)
        now = figures.get(by, math.nan)
        if by in _SMALLER_IS_BETTER:
            return now < before or math.isnan(before)
        return now > before or math.isnan(before)


@dataclass(slots=True, kw_only=True)
class Training:
    """The loop, and the state that its checkpoints hold."""

    checked: CheckedRewardTraining
    group: ProcessGroup
    saves: Saves
    sinks: Sinks = field(default_factory=lambda: Sinks({}))
    state: State = field(default_factory=State)
    interrupted: bool = False

    async def train(self) -> None:
        """Make all steps that are left. Raises Interrupted after a signal, with a checkpoint."""
        state = self.state
        total = self.checked.total_steps
        if not state.step and not state.untrained:
            await self._validate()
        if self.checked.needs_base and not self.checked.base.exists():
            await self.group.everywhere("save_hf", str(self.checked.base))
        while state.step < total and not self._stops_early():
            began = time.perf_counter()
            items = self._batch(state.step)
            metrics = await self.group.update(items)
            state.step += 1
            state.skipped += int(metrics["train/skipped_updates"])
            if metrics["train/skipped_updates"] and state.skipped == 1:
                _log.warning(
                    f"step {state.step} left the weights as they were: a gradient was not finite."
                    " Further steps like it are counted in the report"
                )
            state.tokens += sum(sum(map(len, item.tokens)) for item in items)
            spread = metrics.pop("train/score_squared", 0.0) - metrics.get("train/score", 0.0) ** 2
            metrics["train/score_std"] = float(np.sqrt(max(0.0, spread)))
            state.seconds += time.perf_counter() - began
            metrics[STEP_TIME] = time.perf_counter() - began
            size = self.checked.config.data.train_batch_size
            metrics["train/epoch"] = state.step / (len(self.checked.train.items) // size)
            if state.step % self.checked.test_freq == 0 or state.step == total:
                metrics |= await self._validate()
            self.sinks.log(state.step, metrics)
            await self._save_if_due()
            if self.interrupted and state.step < total:
                await self.saves.settle()
                raise Interrupted(
                    f"stopped at step {state.step} of {total}; the same command goes on from there"
                )
        if state.step and state.skipped == state.step:
            raise RewardError(
                f"none of the {state.step} steps changed the model: their gradients were not finite"
                " (train/loss in metrics.jsonl). Lower optim.lr, or train in float32 with"
                " fsdp_config.param_dtype=null"
            )
        state.peak_bytes = max(state.peak_bytes, await self.group.memory())
        await self.saves.settle()
        await self._save_model(LAST)
        if state.best_step < 0:  # there are no held-out rows
            await self._save_model(BEST)
            state.best_step = state.step

    async def resume(self) -> int | None:
        """Go on from the newest complete checkpoint. Return its step, None without one."""
        newest = checkpoint.newest_complete(self.saves.root)
        if newest is None:
            return None
        state = _read_state(newest.path)
        rows = self.checked.split.digest
        if state.rows not in ("", rows):
            raise CheckpointError(
                f"{self.saves.root} is of a run on other rows: those in the data files have changed"
                " since. Give the same rows again, or another out"
            )
        self.state = state
        await self.group.everywhere("load", str(newest.path / _ENGINE))
        self.saves.resumed(newest)
        _log.info(f"going on from step {self.state.step} ({newest.path})")
        return self.state.step

    def _batch(self, step: int) -> list[Item]:
        """A step's items: each epoch has its own order, which follows from the seed."""
        items = self.checked.train.items
        size = self.checked.config.data.train_batch_size
        epoch, number = divmod(step, len(items) // size)
        order = np.random.default_rng([self.checked.config.trainer.seed, epoch]).permutation(
            len(items)
        )
        return [items[int(place)] for place in order[number * size : (number + 1) * size]]

    def _stops_early(self) -> bool:
        patience = self.checked.config.trainer.early_stop
        return patience is not None and self.state.without_gain >= patience

    async def _validate(self) -> Metrics:
        """Score the held-out rows, and write the weights where they are the best so far."""
        state = self.state
        items = self.checked.held_out.items
        if not items:
            return {}
        outputs = await self.group.scores(items)
        reading = self.checked.objective.reading
        scores: Outputs = [list(map(reading.outputs, rows)) for rows in outputs]
        examples = [self.checked.split.held_out[item.number] for item in items]
        figures = self.checked.objective.quick(examples, scores)
        if not state.step:
            state.untrained = scores
            return {}
        state.last_figures = figures
        by = self.checked.config.trainer.best_by or self.checked.objective.chosen_by[0]
        if state.is_better(figures, by):
            state.best = scores
            state.best_step = state.step
            state.best_figures = figures
            state.without_gain = 0
            await self._save_model(BEST)
        else:
            state.without_gain += 1
        return {
            f"{'val' if name in _ON_CONSOLE else 'held_out'}/{name}": value
            for name, value in figures.items()
        }

    async def _save_model(self, name: str) -> None:
        base = str(self.checked.base.resolve())
        await self.group.everywhere("save_model", str(self.checked.out / name), base, ADAPTER)

    async def _save_if_due(self) -> None:
        every = self.checked.config.trainer.save_freq
        if every < 1:
            every = self.checked.test_freq
        is_last = self.state.step == self.checked.total_steps or self._stops_early()
        if self.state.step % every and not is_last and not self.interrupted:
            return
        self.state.rows = self.state.rows or self.checked.split.digest
        text = json.dumps(dataclasses.asdict(self.state))

        async def write(folder: Path) -> None:
            (folder / _STATE).write_text(text, encoding="utf-8")
            await self.group.everywhere("save", str(folder / _ENGINE))

        await self.saves.save(self.state.step, write)


def newest_state(out: Path) -> State:
    """Return the state in a finished run's newest checkpoint."""
    newest = checkpoint.newest_complete(out / CHECKPOINTS)
    if newest is None:
        raise CheckpointError(f"{out} holds no complete checkpoint: remove it and start again")
    return _read_state(newest.path)


def _read_state(folder: Path) -> State:
    return State(**json.loads((folder / _STATE).read_text(encoding="utf-8")))


def run_figures(state: State) -> dict[str, Any]:
    """Return a run's figures for its report."""
    return {
        "steps": state.step,
        "skipped_updates": state.skipped,
        "best_step": state.best_step,
        "seconds": state.seconds,
        "tokens": state.tokens,
        "peak_bytes": state.peak_bytes,
    }
