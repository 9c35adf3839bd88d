"""How rows are distributed over processes and micro-batches. Pure arithmetic on lengths, numpy
only.

What a micro-batch costs: padded, rows x longest row (as large as the forward pass), so rows with
similar lengths go together; packed, its rows added up, so a row goes to the first micro-batch that
has room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rmrl.backends.base import TrainSettings
from rmrl.config.schema import TrainedConfig
from rmrl.errors import ConfigError
from rmrl.types import Ragged, TrainBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """A micro-batch's maximum size. None: no limit."""

    tokens: int | None
    """Largest cost, see above. A single row may exceed it, because it cannot be cut."""
    rows: int | None
    packed: bool = False


def update_limits(
    trained: TrainedConfig, *, section: str = "actor_rollout_ref.actor", packed: bool = False
) -> Limits:
    """The limits in the settings; `section` is the configuration section with `trained`.

    Raises ConfigError for use_dynamic_bsz=false without a micro-batch size.
    """
    rows = trained.ppo_micro_batch_size_per_gpu
    if trained.use_dynamic_bsz:
        tokens = trained.micro_batch_tokens * _sharing(trained)
        return Limits(tokens=tokens, rows=rows, packed=packed)
    if rows is None:
        raise ConfigError(
            f"{section}.use_dynamic_bsz=false needs the rows of a micro-batch: "
            f"set {section}.ppo_micro_batch_size_per_gpu=4, or use_dynamic_bsz=true"
        )
    return Limits(tokens=None, rows=rows, packed=packed)


def logprob_limits(settings: TrainSettings, *, packed: bool = False) -> Limits:
    """The limits for a forward pass without gradient."""
    tokens = settings.logprob_max_tokens or settings.trained.micro_batch_tokens
    tokens *= _sharing(settings.trained)
    return Limits(tokens=tokens, rows=settings.logprob_max_rows, packed=packed)


def _sharing(trained: TrainedConfig) -> int:
    """How many processes share a micro-batch. The settings limit what one computes."""
    return trained.fsdp_config.ulysses_sequence_parallel_size


def split_by_length(lengths: Sequence[int] | np.ndarray, parts: int) -> list[np.ndarray]:
    """Distribute rows over `parts` processes: row counts differ by at most one, token totals are
    about equal.

    Longest first, in rounds, one row per process each. In each round the process with the fewest
    tokens so far takes the longest row. Returns ascending row numbers per process (int64); with
    fewer rows than processes some are empty.
    """
    lengths = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-lengths, kind="stable")
    shares: list[list[int]] = [[] for _ in range(parts)]
    load = np.zeros(parts, dtype=np.int64)
    for start in range(0, len(order), parts):
        by_load = np.argsort(load, kind="stable")
        # The last round may be short.
        for part, row in zip(by_load, order[start : start + parts], strict=False):
            shares[part].append(int(row))
            load[part] += lengths[row]
    return [np.asarray(sorted(rows), dtype=np.int64) for rows in shares]


def cut(lengths: Sequence[int] | np.ndarray, limits: Limits) -> list[np.ndarray]:
    """Each micro-batch's row numbers, longest rows first, so that a run without enough memory fails
    at once and not after an hour."""
    lengths = np.asarray(lengths, dtype=np.int64)
    micros: list[list[int]] = []
    sums: list[int] = []
    for row, length in sorted(enumerate(lengths.tolist()), key=lambda pair: -pair[1]):
        # Padded, a short row in an earlier micro-batch would cost as much as the long ones there.
        first_open = 0 if limits.packed else max(0, len(micros) - 1)
        for number in range(first_open, len(micros)):
            rows = len(micros[number]) + 1
            if limits.packed:
                cost = sums[number] + length
            else:
                cost = rows * int(lengths[micros[number][0]])
            fits = limits.tokens is None or cost <= limits.tokens
            if fits and (limits.rows is None or rows <= limits.rows):
                micros[number].append(row)
                sums[number] += length
                break
        else:
            micros.append([row])
            sums.append(length)
    return [np.asarray(rows, dtype=np.int64) for rows in micros]


def dummy_row(batch: TrainBatch) -> TrainBatch:
    """A two-token row that weighs nothing, with `batch`'s streams.

    Sharded training gathers parameters in every forward pass, so a process that has fewer
    micro-batches than another runs this.
    """
    streams = {"tokens": Ragged.of([[0, 0]], np.int64)}
    for name in batch.STREAMS[1:]:
        if getattr(batch, name) is not None:
            streams[name] = Ragged.of([[0.0]], np.float32)
    return type(batch)(**streams)
