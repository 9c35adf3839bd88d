"""Shuffled prompt batches that resume exactly at a checkpoint's position.

Epoch e visits the rows in the order `numpy.random.default_rng([seed, e]).permutation(num_rows)`, so
(seed, e, position) is the whole state.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from rmrl.errors import CheckpointError, ConfigError
from rmrl.types import Prompt

_STATE_TYPES = {
    "epoch": int,
    "position": int,
    "seed": int,
    "shuffle": bool,
    "num_rows": int,
    "fingerprint": str,
}


class PromptLoader:
    """Prompts in batches, epoch after epoch.

    `epoch` and `position` (rows returned in this epoch) always point behind the last batch, so
    `state_dict()` taken right after a batch resumes with the next one. Code that fetches batches
    ahead keeps each batch's state beside it.
    """

    def __init__(
        self, prompts: Sequence[Prompt], *, batch_size: int, shuffle: bool, seed: int
    ) -> None:
        """Raises ConfigError for sizes that cannot work."""
        problems: list[str] = []
        if batch_size < 1:
            problems.append(f"data.train_batch_size={batch_size}; need at least 1 prompt per batch")
        elif len(prompts) < batch_size:
            problems.append(
                f"data.train_batch_size={batch_size} but the data set has only {len(prompts)}"
                " prompts (after filtering); need at least one full batch: use"
                f" data.train_batch_size={max(len(prompts), 1)} or less, or more data"
            )
        if seed < 0:
            problems.append(f"data.seed={seed}; need 0 or more, e.g. data.seed=1")
        if problems:
            raise ConfigError(problems)
        self._prompts = prompts
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.position = 0
        self._order_of: tuple[int, np.ndarray] | None = None

    def take(self, count: int) -> list[Prompt]:
        """Return the next `count` prompts, at most one epoch's. Fewer than `count` prompts where an
        epoch ends are skipped."""
        if len(self._prompts) - self.position < count:
            self.epoch += 1
            self.position = 0
        if self._order_of is None or self._order_of[0] != self.epoch:
            order = np.arange(len(self._prompts))
            if self.shuffle:
                order = np.random.default_rng([self.seed, self.epoch]).permutation(len(order))
            self._order_of = (self.epoch, order)
        index = self._order_of[1][self.position : self.position + count]
        self.position += len(index)
        return [self._prompts[i] for i in index.tolist()]

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain JSON values."""
        return {
            "epoch": self.epoch,
            "position": self.position,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "num_rows": len(self._prompts),
            "fingerprint": self.fingerprint,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Move to the position in `state`. Raises CheckpointError where data, seed or shuffle
        differ from the saved run's.

        Another batch size is allowed: the rows' order does not depend on it.
        """
        absent = [k for k, kind in _STATE_TYPES.items() if not isinstance(state.get(k), kind)]
        if absent:
            raise CheckpointError(
                f"the data loader's state lacks {', '.join(absent)} (it has"
                f" {', '.join(map(str, state)) or 'nothing'}); the checkpoint is torn or from"
                " another version; resume from another checkpoint or start a new run"
            )
        for problem in self._differences(state):
            raise CheckpointError(problem)
        self.epoch = state["epoch"]
        self.position = state["position"]

    @cached_property
    def fingerprint(self) -> str:
        """A hash over ids and messages in order, equal only for the same rows. Tokens do not enter,
        because they may change."""
        digest = hashlib.sha256()
        for prompt in self._prompts:
            messages = list(map(dict, prompt.messages))
            row = json.dumps([prompt.id, messages], sort_keys=True, default=str)
            digest.update(row.encode())
            digest.update(b"\n")
        return digest.hexdigest()[:32]

    def _differences(self, state: Mapping[str, Any]) -> Iterator[str]:
        advice = (
            "need the data set the run was started with; give the same data.train_files (and"
            " filters), or start a new run"
        )
        count = len(self._prompts)
        if state["num_rows"] != count:
            yield (
                f"the checkpoint was saved with {state['num_rows']} prompts, the data set now has"
                f" {count}; {advice}"
            )
        if state["fingerprint"] != self.fingerprint:
            yield (
                f"the checkpoint was saved with other prompts (fingerprint {state['fingerprint']})"
                f" than the {count} prompts (fingerprint {self.fingerprint}) now loaded; {advice}"
            )
        for key in ("seed", "shuffle"):
            saved = state[key]
            now = getattr(self, key)
            if saved != now:
                yield (
                    f"the checkpoint was saved with data.{key}={saved}, this run has"
                    f" data.{key}={now}; resume with data.{key}={saved}"
                )
        if state["epoch"] < 0 or not 0 <= state["position"] <= count:
            yield (
                f"the data loader's state points to epoch {state['epoch']}, row {state['position']}"
                f" of {count}; it is torn"
            )
