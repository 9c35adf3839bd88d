"""The training engine for a reward model: FSDP2 as for policy and critic, with the objective
instead of their losses."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from rmrl.backends.base import ProcessSettings, TrainSettings
from rmrl.backends.engine import TrainingEngine
from rmrl.backends.fsdp.part import FSDPPart
from rmrl.backends.micro_batches import Limits, cut, dummy_row, logprob_limits
from rmrl.config.schema import RewardLossConfig
from rmrl.models.adapter_inspect import WEIGHT_FILE
from rmrl.models.token_values import HEAD
from rmrl.reward_training.labelled_batch import Item, LabelledBatch
from rmrl.reward_training.objectives import OBJECTIVES
from rmrl.reward_training.objectives.objective import rows_of_items
from rmrl.reward_training.plain_scores import PlainScores, plain_scores
from rmrl.types import TrainBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardSettings(TrainSettings):
    """One engine's work, the same in every process."""

    objective: str
    loss: RewardLossConfig

    @property
    def section(self) -> str:
        """Optimizer and sharding keys stand at the root."""
        return "train-rm"


class RewardEngine(TrainingEngine):
    """An item's rows stay together in a micro-batch."""

    def __init__(self, settings: RewardSettings, process: ProcessSettings) -> None:
        super().__init__(settings, process, FSDPPart)
        self._objective = OBJECTIVES[settings.objective](settings.loss, settings.labels)
        self.reading = self._objective.reading

    def scores(self, batch: LabelledBatch) -> list[np.ndarray]:
        """Return each row's outputs without a gradient, float32 [tokens read, n]."""
        plan = self._plan(batch, logprob_limits(self._settings, packed=self._part.packed))
        rows: list[np.ndarray] = [np.zeros((0, 1), np.float32)] * len(batch)
        outputs = self._part.compute([micro for _, micro in plan])
        for output, (index, micro) in zip(outputs, plan, strict=True):
            if not len(index):
                continue  # a dummy, of which nothing is read
            numbers_Nn = output.cpu().numpy().reshape(len(output), -1)
            ends = np.cumsum(cast(LabelledBatch, micro).reads_R)[:-1]
            for row, values in zip(index, np.split(numbers_Nn, ends), strict=True):
                rows[int(row)] = values
        return rows

    def save_model(self, path: str, base: str, adapter: str) -> None:
        """Write the model as `save_hf` does. A LoRA stands beside the merged weights, in the folder
        `adapter` within: as peft writes it, for the model in the folder `base`."""
        if not self._settings.model.lora_rank:
            self.save_hf(path)
            return
        tensors = {
            name: each.cpu().contiguous() for name, each in cast(FSDPPart, self._part).adapter()
        }
        self.save_hf(path, also=partial(_write_adapter, tensors, self._settings, base, adapter))

    def _plan(self, batch: TrainBatch, limits: Limits) -> list[tuple[np.ndarray, TrainBatch]]:
        """(row numbers, micro-batch) pairs, the same number in every process."""
        items = list(rows_of_items(cast(LabelledBatch, batch)))
        micros = cut(self._costs(batch, items, limits), limits) if items else []
        plan: list[tuple[np.ndarray, TrainBatch]] = []
        for numbers in micros:
            rows = np.concatenate([items[number] for number in sorted(numbers.tolist())])
            plan.append((rows, batch.select(rows)))
        missing = self._part.micro_batches(len(plan)) - len(plan)
        return plan + [(np.zeros(0, np.int64), dummy_row(batch))] * missing

    def _costs(
        self, batch: TrainBatch, items: Sequence[Sequence[int]], limits: Limits
    ) -> list[int]:
        """Each item's tokens: with its shared tokens once where the model takes them once, else by
        rows, packed or padded. Answers with one token are one row (`computed_rows`)."""
        lengths_R = batch.tokens.lengths
        once_R = (batch.response_mask.lengths == 1) & (not self._settings.own_tokens)
        costs: list[int] = []
        for rows in items:
            if once_R[rows].all():
                rows = rows[:1]
            lengths = lengths_R[rows]
            cost = len(rows) * int(lengths.max())
            if self._part.packed:
                cost = int(lengths.sum())
            elif self._part.sharing(limits) is not None:
                own = batch.response_mask.lengths[rows]
                cost = min(cost, int(lengths[0] - own[0] + own.sum()))
            costs.append(cost)
        return costs

    def _weight(self, batch: TrainBatch) -> tuple[float, float]:
        weight = self._objective.weight(cast(LabelledBatch, batch)) if len(batch) else 0.0
        return weight, weight

    def _loss(
        self, micro: TrainBatch, outputs_N: Tensor, entropy_N: Tensor | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        del entropy_N
        labelled = cast(LabelledBatch, micro)
        if not labelled.reads_R.sum():
            return outputs_N.sum() * 0, {}
        return self._objective.loss(labelled, outputs_N.reshape(len(outputs_N), -1))


def _write_adapter(
    tensors: dict[str, Tensor], settings: TrainSettings, base: str, name: str, folder: Path
) -> None:
    from peft import LoraConfig

    model = settings.model
    kind: dict[str, Any] = {"task_type": "CAUSAL_LM"}
    if settings.role == "critic":
        kind = {"task_type": "SEQ_CLS", "modules_to_save": [HEAD]}
    adapted = {name.split(".")[-3] for name in tensors if name.endswith(".lora_A.weight")}
    config: Any = LoraConfig(
        r=model.lora_rank,
        lora_alpha=model.lora_alpha,
        target_modules=sorted(adapted),
        base_model_name_or_path=base,
        inference_mode=True,
        **kind,
    )
    config.save_pretrained(folder / name)
    save_file(tensors, folder / name / WEIGHT_FILE, metadata={"format": "pt"})


class RewardWorker:
    """A training process. Every process is called with its own rows, at the same time."""

    def __init__(self, settings: RewardSettings, process: ProcessSettings) -> None:
        self.engine = RewardEngine(settings, process)
        self._reading = self.engine.reading
        self._device = settings.device

    def call(self, method: str, *args: object) -> object:
        """Call a method on the engine."""
        return getattr(self.engine, method)(*args)

    def memory(self) -> int:
        """Return the most bytes that this process has had on its device; on CPU it has now."""
        if torch.cuda.is_initialized():
            return torch.cuda.max_memory_allocated()
        return self.engine.memory_bytes()

    def release(self) -> None:
        """Give the model's memory back. Nothing but `plain_scores` may follow."""
        self.engine.close()
        del self.engine
        gc.collect()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()

    def plain_scores(self, folder: str, items: Sequence[Item]) -> PlainScores:
        """Return how transformers alone scores items."""
        return plain_scores(folder, items, self._reading, device=self._device)
