"""One update's metric sums, kept on the device until its end so that no micro-batch waits for the
host."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from rmrl.types import Metrics

Reduce = Callable[[Mapping[str, float]], Mapping[str, float]]

_LOSS = "loss of the mini-batches"
"""Name of the loss among the sums. No loss function has a metric of this name."""


class Totals:
    """Sums over micro-batches and steps; `metrics` turns them into means over all processes'
    counted tokens."""

    def __init__(self, prefix: str = "policy") -> None:
        """`prefix`: policy or critic, the metrics' first name part."""
        self._prefix = prefix
        self._sums: dict[str, Tensor] = {}
        self._loss: Tensor | float = 0.0
        self._tokens = 0.0
        self._grad_norms: list[float] = []
        self._steps = 0
        self._lr = 0.0

    def add_sums(self, loss: Tensor, sums: dict[str, Tensor]) -> None:
        """Add this process's micro-batch: its part in the mini-batch's loss, and sums over its
        counted tokens."""
        self._loss = self._loss + loss.double()
        for name, value in sums.items():
            self._sums[name] = self._sums.get(name, 0.0) + value.double()

    def add_step(self, *, lr: float, grad_norm: float | None, tokens: float) -> None:
        """Add the whole group's finished mini-batch. `grad_norm` None: the step was skipped."""
        self._steps += 1
        self._lr = lr
        self._tokens += tokens
        if grad_norm is not None:
            self._grad_norms.append(grad_norm)

    def metrics(self, reduce: Reduce) -> Metrics:
        """`<prefix>/...`; `reduce` adds up numbers over all processes, by name.

        The loss is a mean over steps and the gradient norm over the steps made (left out where none
        was). The rate is the last step's; everything else is per counted token.
        """
        names = sorted(self._sums)
        values = [self._loss, *(self._sums[name] for name in names)]
        local = torch.stack([torch.as_tensor(value, dtype=torch.float64) for value in values])
        sums = dict(reduce(dict(zip((_LOSS, *names), local.tolist(), strict=True))))
        loss = sums.pop(_LOSS)
        tokens = max(1.0, self._tokens)
        metrics = {f"{self._prefix}/{name}": value / tokens for name, value in sums.items()}
        metrics[f"{self._prefix}/loss"] = loss / max(1, self._steps)
        steps_made = len(self._grad_norms)
        if steps_made:
            metrics[f"{self._prefix}/grad_norm"] = sum(self._grad_norms) / steps_made
        metrics[f"{self._prefix}/lr"] = self._lr
        metrics[f"{self._prefix}/tokens"] = self._tokens
        metrics[f"{self._prefix}/skipped_updates"] = float(self._steps - steps_made)
        return metrics
