"""FSDPEngine: one process's share of sharded training. Knows torch.distributed, not Ray, rewards or algorithms.

Every method is called in all processes of the group together, each with its own rows, because each of them gathers parameters.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from rmrl.backends import state_file
from rmrl.backends.base import ProcessSettings, TrainSettings
from rmrl.backends.fsdp import checkpoint, compat
from rmrl.backends.fsdp.build import build_model, build_optimizer
from rmrl.backends.memory import process_memory_bytes
from rmrl.backends.micro_batches import Limits, cut, dummy_row, update_limits
from rmrl.backends.objective import divisor, response_tokens, value_metrics, weight_and_tokens, weighted_loss, weighted_value_loss
from rmrl.backends.schedule import learning_rate
from rmrl.backends.totals import Totals
from rmrl.errors import ConfigError
from rmrl.models.export import save_hf_folder
from rmrl.models.loading import torch_dtype
from rmrl.models.logprobs import EntropyMode
from rmrl.models.lora import is_adapter, merged_name, merged_parameters
from rmrl.models.packing import attention, packs, set_attention
from rmrl.serving.weight_file import write_weights
from rmrl.tokenizer import policy_tokenizer
from rmrl.types import Metrics, Ragged, TrainBatch

_INNER = "model."
"""Before the names of the Hugging Face model's parameters in ResponseModel and ValueModel."""


class FSDPEngine:
    """A policy (role "actor"), its frozen reference (role "ref") or a critic (role "critic"), sharded over the processes of the group.

    Each role is an engine of its own; those in the same process share the process group.
    """

    def __init__(self, settings: TrainSettings, process: ProcessSettings) -> None:
        if not settings.temperature > 0:
            raise ConfigError(f"actor_rollout_ref.rollout.temperature={settings.temperature}: training divides logits by it, so it must be "
                              "above 0; e.g. temperature=1.0")  # fmt: skip
        self._settings = settings
        self._rank = process.rank
        self._world_size = process.world_size
        self._device = compat.join_group(process, settings.device)
        self._packed = packs(settings.model, device=settings.device)
        self._limits = update_limits(settings.trained, section=settings.section, packed=self._packed)
        self._trains = settings.role != "ref"
        self._adapted = self._trains and settings.model.lora_rank > 0
        torch.manual_seed(settings.seed + process.rank)
        self._model = build_model(settings, self._device)
        self._language_model: PreTrainedModel = cast("Any", self._model).model
        set_attention(self._language_model, attention(settings.model, device=settings.device, dtype=self._compute_dtype()))
        self._optimizer = build_optimizer(settings, self._model) if self._trains else None
        self._step = 0

    def _compute_dtype(self) -> torch.dtype:
        fsdp = self._settings.trained.fsdp_config
        return torch_dtype(fsdp.param_dtype or fsdp.model_dtype, key=f"{self._settings.section}.fsdp_config.param_dtype")

    # --- log-probabilities and values --------------------------------------------------------------------------------

    def logprobs(self, batch: TrainBatch) -> Ragged:
        """Log-probability of each response token under logits / temperature; float32, rows and lengths as `batch.response_mask`."""
        assert self._settings.role != "critic", "a critic has values, no log-probabilities"
        return self._per_token(batch, lambda micro: self._forward(micro, "none")[0])

    def values(self, batch: TrainBatch) -> Ragged:
        """Value of the state before each response token; float32, rows and lengths as `batch.response_mask`."""
        assert self._settings.role == "critic", "only a critic has values"
        return self._per_token(batch, self._forward_values)

    def _per_token(self, batch: TrainBatch, forward: Callable[[TrainBatch], Tensor]) -> Ragged:
        """`forward` of every micro-batch without a gradient, put back in the order of the rows."""
        tokens = self._settings.logprob_max_tokens or self._settings.trained.ppo_max_token_len_per_gpu
        limits = Limits(tokens=tokens, rows=self._settings.logprob_max_rows, packed=self._packed)
        rows: list[np.ndarray] = [np.zeros(0, np.float32)] * len(batch)
        self._model.eval()
        with torch.no_grad():
            for index, micro in self._micro_batches(batch, limits):
                flat = Ragged(forward(micro).cpu().numpy(), micro.response_mask.lengths)
                for row, values in zip(index, flat.rows(), strict=False):
                    rows[row] = values  # a dummy has a row but no index
        compat.free_gathered(self._model)
        return Ragged.of(rows, np.float32)

    def _micro_batches(self, batch: TrainBatch, limits: Limits) -> Iterator[tuple[np.ndarray, TrainBatch]]:
        """(row numbers, micro-batch), as many in every process; dummies, which have no row numbers, make up the difference."""
        with_response = np.flatnonzero(batch.response_mask.lengths > 0)
        plan = [with_response[rows] for rows in cut(batch.tokens.lengths[with_response], limits)]
        count = compat.all_max(len(plan), self._device)
        for rows in plan:
            yield rows, batch.select(rows)
        for _ in range(count - len(plan)):
            yield np.zeros(0, np.int64), dummy_row(batch)

    def _forward(self, micro: TrainBatch, entropy: EntropyMode) -> tuple[Tensor, Tensor | None]:
        tokens = response_tokens(micro, self._device, packed=self._packed)
        return self._model(tokens.input_ids_BS, tokens.positions_N, tokens.targets_N, entropy, tokens.position_ids_BS)

    def _forward_values(self, micro: TrainBatch) -> Tensor:
        tokens = response_tokens(micro, self._device, packed=self._packed)
        return self._model(tokens.input_ids_BS, tokens.positions_N, tokens.position_ids_BS)

    # --- update ------------------------------------------------------------------------------------------------------

    def update(self, mini_batches: Sequence[TrainBatch]) -> Metrics:
        """`ppo_epochs` passes over this process's share of each mini-batch, one optimizer step per mini-batch.

        Every process gets as many mini-batches; a share may be empty. A step whose gradient norm is not finite is skipped in all
        processes and counted in `policy/skipped_updates`. Metrics are means over all counted tokens of all processes, the same in each:
        `policy/{loss,policy_loss,entropy,kl,ref_kl,clip_fraction,grad_norm,lr,tokens,skipped_updates}` as far as the loss gives them; of a
        critic `critic/{loss,value_loss,value_clip_fraction,value_mean,return_mean,explained_variance,grad_norm,lr,tokens,skipped_updates}`.
        """
        assert self._trains, "a reference engine does not train"
        critic, epochs = self._settings.role == "critic", self._settings.trained.ppo_epochs
        before, method = ("values", "values()") if critic else ("old_logprobs", "logprobs()")
        if len(mini_batches) * epochs > 1 and any(getattr(batch, before) is None for batch in mini_batches):
            raise ConfigError(
                f"{len(mini_batches) * epochs} optimizer steps on one batch need {before}, and the batch has none: compute them with "
                f"{method} first, or make one step (ppo_epochs=1 and one mini-batch)"
            )
        self._model.train()
        totals = Totals("critic" if critic else "policy")
        for _ in range(epochs):
            for batch in mini_batches:
                self._train_on(batch, totals)
        metrics = totals.metrics(lambda sums: compat.all_sum(sums, self._device))
        return value_metrics(metrics) if critic else metrics

    def _train_on(self, batch: TrainBatch, totals: Totals) -> None:
        """One optimizer step."""
        weight, tokens = compat.all_sum(weight_and_tokens(batch, self._settings), self._device)
        if weight == 0:
            totals.add_step(lr=self._set_learning_rate(), grad_norm=None, tokens=0)
            return
        for _, micro in self._micro_batches(batch, self._limits):
            self._backward(micro, divisor(weight, self._settings), totals)
        assert self._optimizer is not None
        lr = self._set_learning_rate()
        grad_norm = compat.clip_gradients(self._model, self._settings.trained.grad_clip)
        finite = math.isfinite(grad_norm)
        if finite:
            self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        totals.add_step(lr=lr, grad_norm=grad_norm if finite else None, tokens=tokens)

    def _backward(self, micro: TrainBatch, loss_divisor: float, totals: Totals) -> None:
        loss_sum, sums = self._loss(micro)
        loss = loss_sum / loss_divisor
        (loss * self._world_size).backward()  # FSDP averages gradients over processes; the loss is already a mean over all of them
        totals.add_sums(loss.detach(), sums)

    def _loss(self, micro: TrainBatch) -> tuple[Tensor, dict[str, Tensor]]:
        if self._settings.role == "critic":
            return weighted_value_loss(micro, self._forward_values(micro), settings=self._settings)
        logprobs_N, entropy_N = self._forward(micro, "grad" if self._settings.actor.entropy_coeff else "detached")
        return weighted_loss(micro, logprobs_N, entropy_N, settings=self._settings)

    def _set_learning_rate(self) -> float:
        """Rate of the step about to be made; skipped steps count, so that the schedule ends with the run."""
        lr = learning_rate(self._step, optim=self._settings.trained.optim, total_steps=self._settings.total_steps)
        assert self._optimizer is not None
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        self._step += 1
        return lr

    # --- weights -----------------------------------------------------------------------------------------------------

    def manifest(self, dtype: str | None = None) -> list[tuple[str, torch.dtype, tuple[int, ...]]]:
        """(name, dtype, shape) of what `weights(dtype)` yields, in its order; needs no other process."""
        cast = None if dtype is None else torch_dtype(dtype, key="dtype")
        return [
            (merged_name(name.removeprefix(_INNER)), cast if cast and held.is_floating_point else held, shape)
            for name, (held, shape) in compat.headers(self._model).items()
            if not is_adapter(name)
        ]

    def weights(self, dtype: str | None = None) -> Iterator[tuple[str, Tensor]]:
        """Whole tensors by their Hugging Face names, gathered one at a time; tied weights once, adapters merged into their weights.

        Every process must run the iterator to its end, also those that keep nothing. `dtype` (None: as trained) is cast before gathering,
        of adapted weights after merging.
        """
        cast = None if dtype is None else torch_dtype(dtype, key="dtype")
        shards = {name.removeprefix(_INNER): tensor for name, tensor in compat.shards(self._model).items()}
        if not self._adapted:
            return compat.full_tensors(shards.items(), cast)
        merged = merged_parameters(shards, self._settings.model, gather=compat.full_tensor)
        return ((name, tensor.to(cast) if cast and tensor.is_floating_point() else tensor) for name, tensor in merged)

    def export_weights(self, path: str, dtype: str) -> int:
        """Stream the weights into one file that the rollout engine reads; only rank 0 writes. Returns the file's bytes, 0 elsewhere."""
        tensors = self.weights(dtype)
        if self._rank == 0:
            return write_weights(Path(path), self.manifest(dtype), tensors)
        for _ in tensors:
            pass
        return 0

    def save_hf(self, path: str, dtype: str | None = None) -> None:
        """Write a Hugging Face folder (config, weights, tokenizer), complete or not at all; only rank 0 writes.

        A critic is written as a sequence classifier with one label, as reward models are.
        """
        tensors = self.weights(dtype)
        if self._rank == 0:
            save_hf_folder(Path(path), self._language_model, tensors, tokenizer=policy_tokenizer(self._settings.model))
        else:
            for _ in tensors:
                pass
        compat.barrier(self._device)

    # --- checkpoints -------------------------------------------------------------------------------------------------

    def save(self, path: str) -> None:
        """Write all that `load` needs into `path`; see rmrl.backends.fsdp.checkpoint for the files."""
        folder = Path(path)
        if self._rank == 0:
            shutil.rmtree(folder / "tensors", ignore_errors=True)  # shards of another number of processes must not mix with ours
            (folder / "state.json").unlink(missing_ok=True)
            (folder / "tensors").mkdir(parents=True)
        compat.barrier(self._device)
        checkpoint.save_tensors(folder / "tensors", self._model, self._optimizer)
        checkpoint.write_rng(folder, self._rank)
        compat.barrier(self._device)
        if self._rank == 0:
            state = {"step": self._step, "num_processes": self._world_size}
            state_file.write_state(folder, {**state, **state_file.describe(self._settings, tensor_format=checkpoint.FORMAT)})

    def load(self, path: str) -> None:
        """Continue from `path`, also when another number of processes saved it (then without its random states).

        Raises CheckpointError when it is torn or of another model.
        """
        folder = Path(path)
        state = state_file.read_state(folder)
        checkpoint.load_tensors(folder / "tensors", self._model, self._optimizer)
        if state["num_processes"] == self._world_size:
            checkpoint.read_rng(folder, self._rank)
        self._step = state["step"]
        compat.barrier(self._device)

    # --- memory ------------------------------------------------------------------------------------------------------

    def offload(self) -> None:
        """Move to host memory what fsdp_config.{param,optimizer}_offload name, and give unused device memory back; nothing on CPU."""
        self._move(torch.device("cpu"))

    def onload(self) -> None:
        """Undo `offload`; needed before any other method."""
        self._move(self._device)

    def _move(self, device: torch.device) -> None:
        fsdp = self._settings.trained.fsdp_config
        if self._device.type == "cpu" or fsdp.offload_policy:  # then everything is in host memory already
            return
        if fsdp.param_offload:
            compat.move_model(self._model, device)
        if fsdp.optimizer_offload and self._optimizer is not None:
            compat.move_optimizer(self._optimizer, device)
        compat.settle()

    def memory_bytes(self) -> int:
        """CUDA: device memory held by this process's tensors; CPU: resident memory of this process."""
        return torch.cuda.memory_allocated(self._device) if self._device.type == "cuda" else process_memory_bytes()

    def close(self) -> None:
        """Leave the process group; call once per process, after its last engine."""
        compat.leave_group()
