"""FakeTrainEngine: a real learner with one number per token, for tests that need training but no
language model.

The "policy" is a single distribution softmax(w / temperature) over TOY_TOKENS tokens, whatever the
prompt. The "critic" has the value w[t] after token t. Token t counts as t modulo TOY_TOKENS. Loss,
schedule, metrics and checkpoints are the real ones. So a token with positive advantages becomes
more likely, and a value moves to its returns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from rmrl.backends.base import ProcessSettings, TrainSettings
from rmrl.backends.descriptor import Backend
from rmrl.backends.fsdp.backend import FSDP
from rmrl.backends.objective import (
    divisor,
    response_tokens,
    value_metrics,
    weight_and_tokens,
    weighted_loss,
    weighted_value_loss,
)
from rmrl.backends.schedule import learning_rate
from rmrl.backends.totals import Totals
from rmrl.errors import CheckpointError
from rmrl.types import Metrics, Ragged, TrainBatch

TOY_TOKENS = 64
WEIGHT_NAME = "toy.logits"


class FakeTrainEngine:
    """Engine with FSDPEngine's interface: one process, no torch.distributed, plain SGD (so that
    tests can compute a step by hand)."""

    def __init__(self, settings: TrainSettings, process: ProcessSettings) -> None:
        assert process.world_size == 1, "the fake engine is one process"
        self._settings = settings
        self._step = 0
        self._weights_V = torch.zeros(TOY_TOKENS, requires_grad=settings.role != "ref")

    def logprobs(self, batch: TrainBatch) -> Ragged:
        """Log-probabilities. See TrainingEngine.logprobs."""
        with torch.no_grad():
            logprobs_N, _ = self._logprobs(batch)
        return Ragged(logprobs_N.numpy(), batch.response_mask.lengths.copy())

    def logprobs_and_energies(self, batch: TrainBatch) -> tuple[Ragged, Ragged]:
        """Log-probabilities and energies. See TrainingEngine.logprobs_and_energies."""
        logprobs = self.logprobs(batch)
        with torch.no_grad():
            p_V = torch.softmax(self._weights_V / self._settings.temperature, dim=0)
        energies_N = 1 - 2 * np.exp(logprobs.values) + float(p_V.square().sum())
        return logprobs, Ragged(energies_N, logprobs.lengths.copy())

    def _logprobs(self, batch: TrainBatch) -> tuple[Tensor, Tensor]:
        targets_N = response_tokens(batch, torch.device("cpu")).targets_N
        logprobs_V = torch.log_softmax(self._weights_V / self._settings.temperature, dim=0)
        entropy = -(logprobs_V.exp() * logprobs_V).sum()
        return logprobs_V[targets_N % TOY_TOKENS], entropy.expand(len(targets_N))

    def values(self, batch: TrainBatch) -> Ragged:
        """Values. See TrainingEngine.values."""
        with torch.no_grad():
            return Ragged(self._values(batch).numpy(), batch.response_mask.lengths.copy())

    def _values(self, batch: TrainBatch) -> Tensor:
        tokens = response_tokens(batch, torch.device("cpu"))
        states_N = tokens.input_ids_BS.flatten()[tokens.positions_N]
        return self._weights_V[states_N % TOY_TOKENS]

    def update(self, mini_batches: Sequence[TrainBatch]) -> Metrics:
        """Train, one SGD step per mini-batch. See TrainingEngine.update."""
        critic = self._settings.role == "critic"
        totals = Totals("critic" if critic else "policy")
        for _ in range(self._settings.trained.ppo_epochs):
            for batch in mini_batches:
                weight, tokens = weight_and_tokens(batch, self._settings)
                optim = self._settings.trained.optim
                lr = learning_rate(self._step, optim=optim, total_steps=self._settings.total_steps)
                self._step += 1
                if weight == 0:
                    totals.add_step(lr=lr, grad_norm=None, tokens=0)
                    continue
                if critic:
                    values_N = self._values(batch)
                    loss_sum, sums = weighted_value_loss(batch, values_N, settings=self._settings)
                else:
                    logprobs_N, entropy_N = self._logprobs(batch)
                    loss_sum, sums = weighted_loss(
                        batch, logprobs_N, entropy_N, settings=self._settings
                    )
                loss = loss_sum / divisor(weight, self._settings)
                (gradient_V,) = torch.autograd.grad(loss, self._weights_V)
                with torch.no_grad():
                    self._weights_V -= lr * gradient_V
                totals.add_sums(loss.detach(), sums)
                totals.add_step(lr=lr, grad_norm=float(gradient_V.norm()), tokens=tokens)
        metrics = totals.metrics(lambda sums: sums)
        return value_metrics(metrics) if critic else metrics

    def manifest(self, dtype: str | None = None) -> list[tuple[str, torch.dtype, tuple[int, ...]]]:
        """The weights' names, dtypes and shapes; always float32."""
        return [(WEIGHT_NAME, torch.float32, (TOY_TOKENS,))]

    def weights(self, dtype: str | None = None) -> Iterator[tuple[str, Tensor]]:
        """The one tensor, a copy."""
        yield WEIGHT_NAME, self._weights_V.detach().clone()

    def export_weights(self, path: str, dtype: str) -> int:
        """Write the weights to one file. Returns its bytes."""
        save_file(dict(self.weights()), path)
        return Path(path).stat().st_size

    def save(self, path: str) -> None:
        """Write <path>/toy.safetensors."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {**dict(self.weights()), "step": torch.tensor(self._step)}
        save_file(tensors, folder / "toy.safetensors")

    def load(self, path: str) -> None:
        """Read what `save` wrote. Raises CheckpointError where there is no such file."""
        file = Path(path) / "toy.safetensors"
        if not file.is_file():
            raise CheckpointError(
                f"'{path}' is no checkpoint of the fake engine: it has no toy.safetensors; resume"
                " from another folder"
            )
        tensors = load_file(file)
        self._step = int(tensors["step"])
        with torch.no_grad():
            self._weights_V.copy_(tensors[WEIGHT_NAME])

    def save_hf(self, path: str, dtype: str | None = None) -> None:
        """Write <path>/model.safetensors. Nothing that transformers could load."""
        Path(path).mkdir(parents=True, exist_ok=True)
        save_file(dict(self.weights()), Path(path) / "model.safetensors")

    def offload(self) -> None:
        """Do nothing."""

    def onload(self) -> None:
        """Do nothing."""

    def memory_bytes(self) -> int:
        """The weights' bytes."""
        return self._weights_V.numel() * self._weights_V.element_size()

    def close(self) -> None:
        """Do nothing."""


BACKEND = Backend(
    engine="tests.support.fake_backend:FakeTrainEngine",
    energies=True,
    memory=FSDP.memory,
    saved_dtype=FSDP.saved_dtype,
    reads=("fsdp_config",),
)
