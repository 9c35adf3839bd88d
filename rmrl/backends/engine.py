"""TrainingEngine: training as it is the same under every backend. It handles mini-batches, metrics
and files. A ModelPart handles the model.

Every method is called in all the group's processes together, each with its own share of the rows,
because models are gathered.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rmrl.backends import state_file
from rmrl.backends.base import ProcessSettings, TrainSettings
from rmrl.backends.memory import process_memory_bytes
from rmrl.backends.micro_batches import Limits, cut, dummy_row, logprob_limits, update_limits
from rmrl.backends.objective import (
    divisor,
    value_metrics,
    weight_and_tokens,
    weighted_loss,
    weighted_value_loss,
)
from rmrl.backends.part import ModelPart
from rmrl.backends.process_group import barrier, leave_group
from rmrl.backends.prompt_units import cut_units
from rmrl.backends.random_state import read_rng, write_rng
from rmrl.backends.schedule import learning_rate
from rmrl.backends.totals import Totals
from rmrl.errors import ConfigError
from rmrl.inference.weights.file import write_weights
from rmrl.inference.weights.parts import Parts
from rmrl.models.export import Writers, save_hf_folder
from rmrl.models.loading import torch_dtype
from rmrl.tokenizer import policy_tokenizer
from rmrl.types import Metrics, Ragged, TrainBatch

_HOST = torch.device("cpu")
TENSORS = "tensors"
"""Folder of a checkpoint's tensors, beside state.json."""


class TrainingEngine:
    """A policy (role "actor"), its frozen reference (role "ref") or a critic (role "critic"),
    spread over the group's processes.

    Each role is its own engine; those in the same process share the process group. Implements
    rmrl.interfaces.TrainEngine.
    """

    def __init__(
        self,
        settings: TrainSettings,
        process: ProcessSettings,
        build: Callable[[TrainSettings, ProcessSettings], ModelPart],
    ) -> None:
        if not settings.temperature > 0:
            raise ConfigError(
                f"actor_rollout_ref.rollout.temperature={settings.temperature}: training divides"
                " logits by it, so it must be above 0; e.g. temperature=1.0"
            )
        # An unknown schedule raises here, not at the first step.
        learning_rate(0, optim=settings.trained.optim, total_steps=settings.total_steps)
        self._settings = settings
        self._process = process
        self._trains = settings.role != "ref"
        self._part = build(settings, process)
        self._limits = update_limits(
            settings.trained, section=settings.section, packed=self._part.packed
        )
        self._step = 0

    # --- log-probabilities and values

    def logprobs(self, batch: TrainBatch) -> Ragged:
        """Each response token's log-probability under logits / temperature; float32, rows and
        lengths as `batch.response_mask`.

        Empty in processes outside `output_ranks` (rmrl.backends.row_assignment). The same holds for
        `values`.
        """
        assert self._settings.role != "critic", "a critic has values, no log-probabilities"
        return self._per_token(batch)[0]

    def logprobs_and_energies(self, batch: TrainBatch) -> tuple[Ragged, Ragged]:
        """`logprobs`, and each response token's energy (rmrl.models.softmax) in the same shape,
        from the same forward pass."""
        assert self._settings.role != "critic", "a critic has values, no log-probabilities"
        logprobs, energies = self._per_token(batch, energies=True)
        return logprobs, energies

    def values(self, batch: TrainBatch) -> Ragged:
        """The state's value before each response token; float32, rows and lengths as
        `batch.response_mask`."""
        assert self._settings.role == "critic", "only a critic has values"
        return self._per_token(batch)[0]

    def _per_token(self, batch: TrainBatch, *, energies: bool = False) -> list[Ragged]:
        """The model's outputs without a gradient, and with `energies` theirs, in row order."""
        plan = self._plan(batch, logprob_limits(self._settings, packed=self._part.packed))
        count = len(batch) if self._part.answers else 0
        streams: list[list[np.ndarray]] = [
            [np.zeros(0, np.float32)] * count for _ in range(2 if energies else 1)
        ]
        outputs = self._part.compute([micro for _, micro in plan], energies=energies)
        # A process that does not answer has no outputs at all.
        for output, (index, micro) in zip(outputs, plan, strict=False):
            numbers = output.cpu().numpy().reshape(len(streams), -1)
            for rows, of_stream in zip(streams, numbers, strict=True):
                flat = Ragged(of_stream, micro.response_mask.lengths)
                # A dummy has a row but no index.
                for row, values in zip(index, flat.rows(), strict=False):
                    rows[row] = values
        return [Ragged.of(rows, np.float32) for rows in streams]

    def _plan(self, batch: TrainBatch, limits: Limits) -> list[tuple[np.ndarray, TrainBatch]]:
        """(row numbers, micro-batch) pairs, the same number in every process; dummies, which have
        no row numbers, make up the difference."""
        with_response = np.flatnonzero(batch.response_mask.lengths > 0)
        plan: list[tuple[np.ndarray, TrainBatch]] = []
        sharing = self._part.sharing(limits)
        if sharing is not None:
            micros = cut_units(batch.select(with_response), limits, sharing)
        else:
            micros = cut(batch.tokens.lengths[with_response], limits)
        for index in micros:
            rows = with_response[index]
            plan.append((rows, batch.select(rows)))
        missing = self._part.micro_batches(len(plan)) - len(plan)
        return plan + [(np.zeros(0, np.int64), dummy_row(batch))] * missing

    # --- update

    def update(self, mini_batches: Sequence[TrainBatch]) -> Metrics:
        """Run `ppo_epochs` passes over this process's part in each mini-batch, with one optimizer
        step per mini-batch.

        Every process gets equally many mini-batches. A share may be empty. A step whose gradient
        norm is not finite is skipped in all processes and counted in `policy/skipped_updates`.
        Metrics, the same in each process, are means over all shares' counted tokens. For a policy,
        as far as the loss has them:
        `policy/{loss,policy_loss,entropy,kl,ref_kl,clip_fraction,grad_norm,lr,tokens,skipped_updates}`.
        For a critic: `critic/{loss,value_loss,value_clip_fraction,value_mean,return_mean}`,
        `critic/{explained_variance,grad_norm,lr,tokens,skipped_updates}`.
        """
        assert self._trains, "a reference engine does not train"
        critic = self._settings.role == "critic"
        epochs = self._settings.trained.ppo_epochs
        steps = len(mini_batches) * epochs
        stream = "values" if critic else "old_logprobs"
        if steps > 1 and any(getattr(batch, stream) is None for batch in mini_batches):
            method = "values()" if critic else "logprobs()"
            raise ConfigError(
                f"{steps} optimizer steps on one batch need {stream}, and the batch has none:"
                f" compute them with {method} first, or make one step (ppo_epochs=1 and one"
                " mini-batch)"
            )
        totals = Totals("critic" if critic else "policy")
        for _ in range(epochs):
            for batch in mini_batches:
                self._train_on(batch, totals)
        # It stays from the first step to the last: the mini-batches of an update follow each other.
        self._part.move_optimizer(_HOST)
        metrics = totals.metrics(self._part.total)
        return value_metrics(metrics) if critic else metrics

    def _train_on(self, batch: TrainBatch, totals: Totals) -> None:
        """Make one optimizer step."""
        settings = self._settings
        weight, tokens = self._part.all_sum(self._weight(batch))
        lr = learning_rate(
            self._step, optim=settings.trained.optim, total_steps=settings.total_steps
        )
        self._step += 1  # skipped steps count, so that the schedule ends with the run
        if weight == 0:
            totals.add_step(lr=lr, grad_norm=None, tokens=0)
            return
        loss_divisor = divisor(weight, settings)

        def loss(micro: TrainBatch, outputs_N: Tensor, entropy_N: Tensor | None) -> Tensor:
            loss_sum, sums = self._loss(micro, outputs_N, entropy_N)
            part = loss_sum / loss_divisor
            totals.add_sums(part.detach(), sums)
            return part

        self._part.train([micro for _, micro in self._plan(batch, self._limits)], loss)
        self._part.move_optimizer(self._part.device)
        norm = self._part.step(lr)
        totals.add_step(lr=lr, grad_norm=norm if math.isfinite(norm) else None, tokens=tokens)

    def _weight(self, batch: TrainBatch) -> tuple[float, float]:
        """A share's weight in the loss, and what its metrics are counted by."""
        return weight_and_tokens(batch, self._settings)

    def _loss(
        self, micro: TrainBatch, outputs_N: Tensor, entropy_N: Tensor | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """A micro-batch's un-normalised loss, and its metric sums."""
        if self._settings.role == "critic":
            return weighted_value_loss(micro, outputs_N, settings=self._settings)
        return weighted_loss(micro, outputs_N, entropy_N, settings=self._settings)

    # --- weights

    def manifest(self, dtype: str | None = None) -> list[tuple[str, torch.dtype, tuple[int, ...]]]:
        """(name, dtype, shape) for each tensor in `weights(dtype)`, in order; needs no other
        process."""
        return self._part.manifest(_dtype(dtype))

    def weights(self, dtype: str | None = None) -> Iterator[tuple[str, Tensor]]:
        """Yield whole tensors by their Hugging Face names, gathered one at a time; tied weights
        once, adapters merged into their weights.

        Every process must run the iterator to its end, also those that keep nothing. Tensors are
        cast to `dtype` (None: as trained) before gathering, adapted weights after merging.
        """
        return self._part.weights(_dtype(dtype))

    def parts(self) -> dict[str, Parts]:
        """Return the tensors in `weights` that the processes hold in equal parts."""
        return self._part.parts()

    def local_weights(self, dtype: str | None = None) -> Iterator[tuple[str, Tensor]]:
        """Yield what `weights` yields, but this process's part where `parts` has the tensor."""
        return self._part.local_weights(_dtype(dtype))

    def export_weights(self, path: str, dtype: str) -> int:
        """Stream the weights into one file that the rollout engine reads. Only rank 0 writes.
        Returns the file's bytes, 0 in the other processes."""
        tensors = self.weights(dtype)
        if self._process.rank == 0:
            return write_weights(Path(path), self.manifest(dtype), tensors)
        _run_out(tensors)
        return 0

    def save_hf(
        self,
        path: str,
        dtype: str | None = None,
        also: Callable[[Path], None] | None = None,
    ) -> None:
        """Write a Hugging Face folder (config, weights, tokenizer), complete or not at all. Its
        files are dealt out among all processes.

        `dtype` None: that of compute. A critic is written as a sequence classifier with one label,
        like a reward model. `also` may write further files into the folder, in one process.
        """
        tokenizer = None
        if self._process.rank == 0:
            tokenizer = policy_tokenizer(self._settings.model)
        save_hf_folder(
            Path(path),
            self._part.language_model,
            self._part.weights(_dtype(dtype) or self._part.compute_dtype),
            tokenizer=tokenizer,
            check=also,
            writers=Writers(
                rank=self._process.rank,
                count=self._process.world_size,
                barrier=barrier,
            ),
        )
        barrier()

    # --- checkpoints

    def save(self, path: str) -> None:
        """Write everything that `load` needs to `path`: tensors/, each process's random state, and
        state.json last."""
        folder = Path(path)
        if self._process.rank == 0:
            # Shards of another number of processes must not mix with these.
            shutil.rmtree(folder / TENSORS, ignore_errors=True)
            (folder / state_file.STATE).unlink(missing_ok=True)
            (folder / TENSORS).mkdir(parents=True)
        barrier()
        self._part.move_optimizer(self._part.device)
        self._part.save_tensors(folder / TENSORS)
        self._part.move_optimizer(_HOST)
        write_rng(folder, self._process.rank)
        barrier()
        if self._process.rank == 0:
            state: dict[str, Any] = {
                "step": self._step,
                "num_processes": self._process.world_size,
            }
            state |= state_file.describe(self._settings, tensor_format=self._part.tensor_format)
            state_file.write_state(folder, state)

    def load(self, path: str) -> None:
        """Continue from `path`, also when more or fewer processes saved it (then without its random
        states).

        Raises CheckpointError for a torn checkpoint, another model's, and one from a backend with
        another format.
        """
        folder = Path(path)
        state = state_file.read_state(folder)
        state_file.require_format(folder, state, self._part.tensor_format)
        self._part.move_optimizer(self._part.device)
        self._part.load_tensors(folder / TENSORS)
        self._part.move_optimizer(_HOST)
        if state["num_processes"] == self._process.world_size:
            read_rng(folder, self._process.rank)
        self._step = state["step"]
        barrier()

    # --- memory

    def offload(self) -> None:
        """Move the parts named in the settings to host memory, and free unused device memory; does
        nothing on CPU."""
        self._part.move_optimizer(_HOST)
        self._part.move(_HOST)

    def onload(self) -> None:
        """Undo `offload`; needed before any other method. Optimizer state stays in host memory
        until a step, a checkpoint or a resume needs it."""
        self._part.move(self._part.device)

    def memory_bytes(self) -> int:
        """CUDA: device memory that this process's tensors take; CPU: this process's resident
        memory."""
        device = self._part.device
        if device.type == "cuda":
            return torch.cuda.memory_allocated(device)
        return process_memory_bytes()

    def close(self) -> None:
        """Leave the process group. Call once per process, after its last engine."""
        leave_group()


def _dtype(name: str | None) -> torch.dtype | None:
    return None if name is None else torch_dtype(name, key="dtype")


def _run_out(tensors: Iterator[tuple[str, Tensor]]) -> None:
    """Exhaust the iterator, whose gathering needs every process."""
    for _ in tensors:
        pass
