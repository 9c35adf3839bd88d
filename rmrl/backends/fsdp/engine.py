"""FSDPEngine: one process's share of sharded training. Knows torch.distributed, not Ray, rewards or algorithms.

Every method is called in all processes of the group together, each with its own rows, because each of them gathers parameters.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rmrl.backends.base import ProcessSettings, TrainSettings
from rmrl.backends.fsdp import checkpoint, compat
from rmrl.backends.memory import process_memory_bytes
from rmrl.backends.micro_batches import Limits, cut, dummy_row, update_limits
from rmrl.backends.objective import response_tokens, weight_and_tokens, weighted_loss
from rmrl.backends.schedule import learning_rate
from rmrl.backends.totals import Totals
from rmrl.errors import CheckpointError, ConfigError
from rmrl.models.export import save_hf_folder
from rmrl.models.loading import load_causal_lm, load_tokenizer, torch_dtype
from rmrl.models.logprobs import EntropyMode, ResponseModel
from rmrl.serving.weight_file import write_weights
from rmrl.types import Metrics, Ragged, TrainBatch


class FSDPEngine:
    """A policy (role "actor") or its frozen reference (role "ref"), sharded over the processes of the group.

    A reference is a second engine in the same process; it shares the process group.
    """

    def __init__(self, settings: TrainSettings, process: ProcessSettings) -> None:
        if not settings.temperature > 0:
            raise ConfigError(f"actor_rollout_ref.rollout.temperature={settings.temperature}: training divides logits by it, so it must be "
                              "above 0; e.g. temperature=1.0")  # fmt: skip
        self._settings = settings
        self._rank = process.rank
        self._world_size = process.world_size
        self._device = compat.join_group(process, settings.device)
        self._limits = update_limits(settings.actor)
        self._trains = settings.role == "actor"
        torch.manual_seed(settings.seed + process.rank)
        self._model = self._build_model()
        self._optimizer = self._build_optimizer() if self._trains else None
        self._step = 0

    def _build_model(self) -> ResponseModel:
        fsdp = self._settings.actor.fsdp_config
        master = torch_dtype(fsdp.model_dtype, key="actor_rollout_ref.actor.fsdp_config.model_dtype")
        compute = None if fsdp.param_dtype is None else torch_dtype(fsdp.param_dtype, key="actor_rollout_ref.actor.fsdp_config.param_dtype")
        # A frozen model needs no master weights: rounding once gives the same compute as rounding at every gather.
        language_model = load_causal_lm(self._settings.model, dtype=master if self._trains else compute or master)
        model = ResponseModel(language_model, temperature=self._settings.temperature).requires_grad_(self._trains)
        model.check_head()
        compat.shard(
            model,
            mesh=compat.device_mesh(self._settings.device, fsdp.fsdp_size),
            param_dtype=compute,
            reduce_dtype=torch_dtype(fsdp.reduce_dtype, key="actor_rollout_ref.actor.fsdp_config.reduce_dtype"),
            reshard_after_forward=fsdp.reshard_after_forward,
        )
        return model.to(self._device)

    def _build_optimizer(self) -> torch.optim.AdamW:
        optim = self._settings.actor.optim
        learning_rate(0, optim=optim, total_steps=self._settings.total_steps)  # an unknown schedule is an error now, not at the first step
        first, second = optim.betas
        return torch.optim.AdamW(
            self._model.parameters(), lr=optim.lr, betas=(first, second), eps=optim.eps, weight_decay=optim.weight_decay, fused=True
        )

    # --- log-probabilities -------------------------------------------------------------------------------------------

    def logprobs(self, batch: TrainBatch) -> Ragged:
        """Log-probability of each response token under logits / temperature; float32, rows and lengths as `batch.response_mask`."""
        limits = Limits(
            tokens=self._settings.logprob_max_tokens or self._settings.actor.ppo_max_token_len_per_gpu, rows=self._settings.logprob_max_rows
        )
        rows: list[np.ndarray] = [np.zeros(0, np.float32)] * len(batch)
        self._model.eval()
        with torch.no_grad():
            for index, micro in self._micro_batches(batch, limits):
                logprobs_N, _ = self._forward(micro, "none")
                for row, values in zip(index, Ragged(logprobs_N.cpu().numpy(), micro.response_mask.lengths).rows(), strict=False):
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
        tokens = response_tokens(micro, self._device)
        return self._model(tokens.input_ids_BS, tokens.positions_N, tokens.targets_N, entropy)

    # --- update ------------------------------------------------------------------------------------------------------

    def update(self, mini_batches: Sequence[TrainBatch]) -> Metrics:
        """`ppo_epochs` passes over this process's share of each mini-batch, one optimizer step per mini-batch.

        Every process gets as many mini-batches; a share may be empty. A step whose gradient norm is not finite is skipped in all
        processes and counted in `policy/skipped_updates`. Metrics are means over all counted tokens of all processes, the same in each:
        `policy/{loss,policy_loss,entropy,kl,ref_kl,clip_fraction,grad_norm,lr,tokens,skipped_updates}` as far as the loss gives them.
        """
        assert self._trains, "a reference engine does not train"
        epochs = self._settings.actor.ppo_epochs
        if len(mini_batches) * epochs > 1 and any(batch.old_logprobs is None for batch in mini_batches):
            raise ConfigError(
                f"{len(mini_batches) * epochs} optimizer steps on one batch need old_logprobs, and the batch has none: compute them with "
                "logprobs() first, or make one step (ppo_epochs=1 and one mini-batch)"
            )
        self._model.train()
        totals = Totals()
        for _ in range(epochs):
            for batch in mini_batches:
                self._train_on(batch, totals)
        return totals.metrics(lambda sums: compat.all_sum(sums, self._device))

    def _train_on(self, batch: TrainBatch, totals: Totals) -> None:
        """One optimizer step."""
        weight, tokens = compat.all_sum(weight_and_tokens(batch, self._settings), self._device)
        if weight == 0:
            totals.add_step(lr=self._set_learning_rate(), grad_norm=None, tokens=0)
            return
        for _, micro in self._micro_batches(batch, self._limits):
            self._backward(micro, weight, totals)
        assert self._optimizer is not None
        lr = self._set_learning_rate()
        grad_norm = compat.clip_gradients(list(self._model.parameters()), self._settings.actor.grad_clip)
        finite = math.isfinite(grad_norm)
        if finite:
            self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        totals.add_step(lr=lr, grad_norm=grad_norm if finite else None, tokens=tokens)

    def _backward(self, micro: TrainBatch, weight: float, totals: Totals) -> None:
        logprobs_N, entropy_N = self._forward(micro, "grad" if self._settings.actor.entropy_coeff else "detached")
        loss_sum, sums = weighted_loss(micro, logprobs_N, entropy_N, settings=self._settings)
        loss = loss_sum / weight
        (loss * self._world_size).backward()  # FSDP averages gradients over processes; the loss is already a mean over all of them
        totals.add_sums(loss.detach(), sums)

    def _set_learning_rate(self) -> float:
        """Rate of the step about to be made; skipped steps count, so that the schedule ends with the run."""
        lr = learning_rate(self._step, optim=self._settings.actor.optim, total_steps=self._settings.total_steps)
        assert self._optimizer is not None
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        self._step += 1
        return lr

    # --- weights -----------------------------------------------------------------------------------------------------

    def manifest(self, dtype: str | None = None) -> list[tuple[str, torch.dtype, tuple[int, ...]]]:
        """(name, dtype, shape) of what `weights(dtype)` yields, in its order; needs no other process."""
        cast = None if dtype is None else torch_dtype(dtype, key="dtype")
        return [(name, cast if cast and p.is_floating_point() else p.dtype, tuple(p.shape)) for name, p in self._named_parameters()]

    def weights(self, dtype: str | None = None) -> Iterator[tuple[str, Tensor]]:
        """Whole tensors by their Hugging Face names, gathered one at a time; tied weights once.

        Every process must run the iterator to its end, also those that keep nothing. `dtype` (None: as trained) is cast before gathering.
        """
        compat.free_gathered(self._model)
        return compat.full_tensors(self._named_parameters(), None if dtype is None else torch_dtype(dtype, key="dtype"))

    def _named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        return self._model.model.named_parameters()

    def export_weights(self, path: str, dtype: str) -> int:
        """Stream the weights into one file that the rollout engine reads; only rank 0 writes. Returns the file's bytes, 0 elsewhere."""
        tensors = self.weights(dtype)
        if self._rank == 0:
            return write_weights(Path(path), self.manifest(dtype), tensors)
        for _ in tensors:
            pass
        return 0

    def save_hf(self, path: str, dtype: str | None = None) -> None:
        """Write a Hugging Face folder (config, weights, tokenizer), complete or not at all; only rank 0 writes."""
        tensors = self.weights(dtype)
        if self._rank == 0:
            save_hf_folder(Path(path), self._model.model, tensors, tokenizer=load_tokenizer(self._settings.model))
        else:
            for _ in tensors:
                pass
        compat.barrier(self._device)

    # --- checkpoints -------------------------------------------------------------------------------------------------

    def save(self, path: str) -> None:
        """Write what `checkpoint.save_contents` names into `path`; see rmrl.backends.fsdp.checkpoint for the files."""
        folder, contents = Path(path), self._settings.actor.checkpoint.save_contents
        if self._rank == 0:
            shutil.rmtree(folder / "tensors", ignore_errors=True)  # shards of another number of processes must not mix with ours
            (folder / "state.json").unlink(missing_ok=True)
            (folder / "tensors").mkdir(parents=True)
        compat.barrier(self._device)
        checkpoint.write_tensors(folder / "tensors", self._checkpoint_tensors(contents))
        if "extra" in contents:
            checkpoint.write_rng(folder, self._rank)
        if "hf_model" in contents:
            self.save_hf(str(folder / "huggingface"))
        compat.barrier(self._device)
        if self._rank == 0:
            checkpoint.write_state(folder, {"step": self._step, "contents": contents, "num_processes": self._world_size})

    def load(self, path: str) -> None:
        """Continue from `path`, also when another number of processes saved it (then without its random states).

        Raises CheckpointError when it is torn, of another model, or lacks parameters or optimizer state.
        """
        folder = Path(path)
        state = checkpoint.read_state(folder)
        needed = ["model", "optimizer"] if self._trains else ["model"]
        lacking = [part for part in needed if part not in state["contents"]]
        if lacking:
            raise CheckpointError(
                f"'{folder}' was saved without {' and '.join(lacking)} (actor.checkpoint.save_contents={state['contents']}), so training "
                "cannot continue from it: start anew with actor_rollout_ref.model.path set to a Hugging Face export"
            )
        checkpoint.read_tensors(folder / "tensors", self._checkpoint_tensors(needed))
        if state["num_processes"] == self._world_size:
            checkpoint.read_rng(folder, self._rank)
        self._step = state["step"]
        compat.barrier(self._device)

    def _checkpoint_tensors(self, contents: Sequence[str]) -> dict[str, Tensor]:
        compat.free_gathered(self._model)
        language_model = self._model.model
        tensors = checkpoint.model_tensors(language_model) if "model" in contents else {}
        if "optimizer" in contents and self._optimizer is not None:
            tensors |= checkpoint.optimizer_tensors(language_model, self._optimizer)
        return tensors

    # --- memory ------------------------------------------------------------------------------------------------------

    def offload(self) -> None:
        """Move to host memory what fsdp_config.{param,optimizer}_offload name, and give unused device memory back; nothing on CPU."""
        self._move(torch.device("cpu"))

    def onload(self) -> None:
        """Undo `offload`; needed before any other method."""
        self._move(self._device)

    def _move(self, device: torch.device) -> None:
        if self._device.type == "cpu":
            return
        fsdp = self._settings.actor.fsdp_config
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
