"""Training of a tiny model written out by hand (Hugging Face, torch's AdamW, one row at a time),
and the same through MegatronPart."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from rmrl.backends.base import ProcessSettings, TrainSettings
from rmrl.backends.micro_batches import Limits, cut, dummy_row, split_by_length
from rmrl.config.schema import ActorConfig, CriticConfig, MegatronConfig, ModelConfig, OptimConfig
from rmrl.models.loading import load_causal_lm
from rmrl.models.token_values import load_value_model
from rmrl.types import Ragged, TrainBatch
from tests.backends.policies import make_batch

VOCABULARY = 131
TEMPERATURE, ENTROPY_COEFF = 0.9, 0.05
STEPS, ROWS = 3, 6
MICRO_TOKENS = 60
LR, CLIP = 1e-2, 0.5
OPTIM = OptimConfig(lr=LR, betas=[0.8, 0.95], eps=1e-3, weight_decay=0.5)
"""A large epsilon: with a tiny one, entries whose gradient is nothing but rounding move by the
whole learning rate. A weight decay that shows on norms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What STEPS optimizer steps gave."""

    losses: list[float]
    norms: list[float]
    before: list[float]
    """Log-probabilities (a critic's values) of the response tokens of `batch_of(0)` before the
    first step."""
    after: list[float]
    """The same after the last one."""
    energies: list[float]
    """Of these tokens after the last step; empty for a critic."""
    weights: dict[str, Tensor]


def batch_of(step: int) -> TrainBatch:
    """The rows of one optimizer step, without the padding token: Hugging Face's embedding gives
    that one no gradient."""
    batch = make_batch(ROWS, seed=20 + step, streams=False)
    return dataclasses.replace(
        batch, tokens=Ragged(1 + batch.tokens.values % (VOCABULARY - 1), batch.tokens.lengths)
    )


def counted(batch: TrainBatch) -> float:
    """Response tokens that count."""
    return float(batch.response_mask.values.sum())


def token_loss(
    outputs_N: Tensor, entropy_N: Tensor | None, advantages_N: Tensor, mask_N: Tensor
) -> Tensor:
    """Summed over tokens: a policy gradient with entropy bonus; without entropies squared distances
    of values from targets."""
    if entropy_N is None:
        return ((outputs_N - advantages_N) ** 2 * mask_N).sum()
    return ((-advantages_N * outputs_N - ENTROPY_COEFF * entropy_N) * mask_N).sum()


# --- by hand


def train_by_hand(folder: Path, role: str) -> Trained:
    """Of one process."""
    config = ModelConfig(path=str(folder), enable_gradient_checkpointing=False)
    model: Any = (load_value_model if role == "critic" else load_causal_lm)(
        config, dtype=torch.float32
    )
    first, second = OPTIM.betas
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=LR,
        betas=(first, second),
        eps=OPTIM.eps,
        weight_decay=OPTIM.weight_decay,
    )
    losses, norms, before = [], [], _answers(model, role)
    for step in range(STEPS):
        batch = batch_of(step)
        loss = torch.stack([_row_loss(model, role, row) for row in _rows(batch)]).sum() / counted(
            batch
        )
        loss.backward()
        losses.append(loss.item())
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP).item())
        optimizer.step()
        optimizer.zero_grad()
    return Trained(
        losses=losses,
        norms=norms,
        before=before,
        after=_answers(model, role),
        energies=[] if role == "critic" else _energies(model),
        weights=_saved(model),
    )


def _saved(model: Any) -> dict[str, Tensor]:
    """Weights as a checkpoint has them: transformers holds the matrices of experts under other
    names."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return load_file(Path(folder) / "model.safetensors")


def _rows(batch: TrainBatch) -> list[TrainBatch]:
    return [batch.select([row]) for row in range(len(batch))]


def _answers(model: Any, role: str) -> list[float]:
    with torch.no_grad():
        return torch.cat([_outputs(model, role, row)[0] for row in _rows(batch_of(0))]).tolist()


@torch.no_grad()
def _energies(model: Any) -> list[float]:
    found: list[float] = []
    for row in _rows(batch_of(0)):
        log_p_TV, targets_T1 = _distributions(model, row)
        p_TV = log_p_TV.exp()
        energies_T = 1 - 2 * p_TV.gather(-1, targets_T1)[:, 0] + p_TV.square().sum(-1)
        found += energies_T.tolist()
    return found


def _row_loss(model: Any, role: str, row: TrainBatch) -> Tensor:
    outputs_T, entropy_T = _outputs(model, role, row)
    assert row.advantages is not None
    return token_loss(
        outputs_T,
        entropy_T,
        torch.from_numpy(row.advantages.values),
        torch.from_numpy(row.response_mask.values),
    )


def _outputs(model: Any, role: str, row: TrainBatch) -> tuple[Tensor, Tensor | None]:
    """(log-probabilities, entropies) or (values, None) of one row's response tokens."""
    if role == "critic":
        return model.score(_hidden(model, row))[:, 0], None
    log_p_TV, targets_T1 = _distributions(model, row)
    return log_p_TV.gather(-1, targets_T1)[:, 0], -(log_p_TV.exp() * log_p_TV).sum(-1)


def _distributions(model: Any, row: TrainBatch) -> tuple[Tensor, Tensor]:
    """Log-probabilities of all tokens before each response token, and the response [T, 1]."""
    responses = int(row.response_mask.lengths[0])
    log_p_TV = (model.lm_head(_hidden(model, row)) / TEMPERATURE).log_softmax(-1)
    return log_p_TV, torch.from_numpy(row.tokens.values)[-responses:, None]


def _hidden(model: Any, row: TrainBatch) -> Tensor:
    ids = torch.from_numpy(row.tokens.values)[None]
    responses = int(row.response_mask.lengths[0])
    return model.base_model(input_ids=ids).last_hidden_state[0, -responses - 1 : -1]


# --- through Megatron


def make_settings(
    folder: Path, role: str = "actor", *, model: dict[str, Any] | None = None, **megatron: Any
) -> TrainSettings:
    """float32; `megatron`: entries of MegatronConfig, `model` of ModelConfig."""
    sizes = MegatronConfig(**{"dtype": "float32", **megatron})
    trained: dict[str, Any] = {
        "strategy": "megatron",
        "megatron": sizes,
        "optim": OPTIM,
        "grad_clip": CLIP,
    }
    return TrainSettings(
        model=ModelConfig(path=str(folder), **(model or {})),
        actor=ActorConfig(entropy_coeff=ENTROPY_COEFF, **trained),
        critic=(
            CriticConfig(ppo_mini_batch_size=ROWS, ppo_epochs=1, **trained)
            if role == "critic"
            else None
        ),
        role=role,  # pyright: ignore[reportArgumentType]
        temperature=TEMPERATURE,
        total_steps=STEPS,
        max_response_length=10,
    )


def plan_of(part: Any, batch: TrainBatch, tokens: int) -> list[np.ndarray]:
    """Row numbers of each micro-batch."""
    return cut(batch.tokens.lengths, Limits(tokens=tokens, rows=None, packed=part.packed))


def micros_of(part: Any, batch: TrainBatch, tokens: int) -> list[TrainBatch]:
    """The micro-batches of a process's share, dummies included, as the engine makes them."""
    plan = plan_of(part, batch, tokens)
    return [batch.select(index) for index in plan] + [dummy_row(batch)] * (
        part.micro_batches(len(plan)) - len(plan)
    )


def share_of(part: Any, batch: TrainBatch, process: ProcessSettings) -> np.ndarray:
    """Row numbers of this process's share."""
    sizes = part.model.sizes
    return split_by_length(batch.tokens.lengths, sizes.data)[sizes.coordinates(process.rank).data]


def loss_of(
    batch: TrainBatch, seen: list[float]
) -> Callable[[TrainBatch, Tensor, Tensor | None], Tensor]:
    """The loss of a step over `batch`, as a part asks for it; its values are added to `seen`."""

    def loss(micro: TrainBatch, outputs_N: Tensor, entropy_N: Tensor | None) -> Tensor:
        assert micro.advantages is not None
        advantages_N, mask_N = (
            torch.from_numpy(micro.advantages.values),
            torch.from_numpy(micro.response_mask.values),
        )
        part = token_loss(outputs_N, entropy_N, advantages_N, mask_N) / counted(batch)
        seen.append(part.item())
        return part

    return loss


def train_step(
    part: Any, step: int, process: ProcessSettings, *, tokens: int = MICRO_TOKENS, lr: float = LR
) -> tuple[float, float]:
    """(loss of the whole batch, gradient norm)."""
    batch, seen = batch_of(step), []
    share = batch.select(share_of(part, batch, process))
    part.train(micros_of(part, share, tokens), loss_of(batch, seen))
    return part.all_sum([sum(seen)])[0], part.step(lr)


def answers(part: Any, process: ProcessSettings, *, energies: bool = False) -> list[float]:
    """Of the response tokens of `batch_of(0)`, put together from what the answering processes give
    for their shares; with `energies` these."""
    batch = batch_of(0)
    rows = share_of(part, batch, process)
    share, lengths = batch.select(rows), batch.response_mask.lengths
    found = np.zeros(len(batch.response_mask.values))
    micros = micros_of(part, share, MICRO_TOKENS)
    outputs = list(part.compute(micros, energies=energies))
    assert bool(outputs) == part.answers
    for output, index in zip(
        outputs, plan_of(part, share, MICRO_TOKENS), strict=False
    ):  # dummies come last
        assert output.ndim == (2 if energies else 1)
        output_N = output[1] if energies else output
        assert output_N.dtype == torch.float32
        assert not output_N.requires_grad
        for row, values in zip(
            rows[index], Ragged(output_N.numpy(), lengths[rows[index]]).rows(), strict=True
        ):
            start = batch.response_mask.offsets[row]
            found[start : start + len(values)] = values
    return part.all_sum(found.tolist())


def train_through_megatron(part: Any, process: ProcessSettings) -> Trained:
    """As `train_by_hand`; the same in every process."""
    before = answers(part, process)
    made = [train_step(part, step, process) for step in range(STEPS)]
    after = answers(part, process)
    critic = part._settings.role == "critic"
    energies = [] if critic else answers(part, process, energies=True)
    weights = {name: tensor.clone() for name, tensor in part.weights(None)}
    return Trained(
        losses=[loss for loss, _ in made],
        norms=[norm for _, norm in made],
        before=before,
        after=after,
        energies=energies,
        weights=weights,
    )
