"""How rows are dealt to processes and cut into micro-batches. Pure arithmetic on lengths, numpy
only.

Cost of a micro-batch: padded, rows x longest row (what the forward pass computes), so rows of like
length go together; packed, the sum of its rows, so rows fill up the first micro-batch that has
room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rmrl.config.schema import TrainedConfig
from rmrl.errors import ConfigError
from rmrl.types import Ragged, TrainBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Size of a micro-batch, at most. None: no limit."""

    tokens: int | None
    """The cost as above; a single row may exceed it, for it cannot be cut."""
    rows: int | None
    packed: bool = False


def update_limits(
    trained: TrainedConfig, *, section: str = "actor_rollout_ref.actor", packed: bool = False
) -> Limits:
    """The limits that the settings ask for; `section` is where they stand.

    Raises ConfigError for use_dynamic_bsz=false without a micro-batch size.
    """
    rows = trained.ppo_micro_batch_size_per_gpu
    if trained.use_dynamic_bsz:
        return Limits(tokens=trained.ppo_max_token_len_per_gpu, rows=rows, packed=packed)
    if rows is None:
        raise ConfigError(
            f"{section}.use_dynamic_bsz=false needs the rows of a micro-batch: "
            f"set {section}.ppo_micro_batch_size_per_gpu=4, or use_dynamic_bsz=true"
        )
    return Limits(tokens=None, rows=rows, packed=packed)


def split_by_length(lengths: Sequence[int] | np.ndarray, parts: int) -> list[np.ndarray]:
    """Deal rows to `parts` processes: row counts differ by at most one, token totals are about
    equal.

    Longest first, in rounds of one row per process; in each round the process with the fewest
    tokens so far takes the longest row. Returns ascending row numbers per process (int64); with
    fewer rows than processes some are empty.
    """
    lengths = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-lengths, kind="stable")
    taken: list[list[int]] = [[] for _ in range(parts)]
    load = np.zeros(parts, dtype=np.int64)
    for start in range(0, len(order), parts):
        neediest = np.argsort(load, kind="stable")
        for part, row in zip(
            neediest, order[start : start + parts], strict=False
        ):  # the last round may be short
            taken[part].append(int(row))
            load[part] += lengths[row]
    return [np.asarray(sorted(rows), dtype=np.int64) for rows in taken]


def cut(lengths: Sequence[int] | np.ndarray, limits: Limits) -> list[np.ndarray]:
    """Row numbers of each micro-batch, longest rows first (a run that lacks memory fails at once,
    not an hour later)."""
    lengths = np.asarray(lengths, dtype=np.int64)
    micros: list[list[int]] = []
    sums: list[int] = []
    for row, length in sorted(enumerate(lengths.tolist()), key=lambda pair: -pair[1]):
        # Padded, a short row in an earlier micro-batch would cost as much as the long ones there.
        first_open = 0 if limits.packed else max(0, len(micros) - 1)
        for number in range(first_open, len(micros)):
            rows = len(micros[number]) + 1
            cost = (
                sums[number] + length if limits.packed else rows * int(lengths[micros[number][0]])
            )
            if (limits.tokens is None or cost <= limits.tokens) and (
                limits.rows is None or rows <= limits.rows
            ):
                micros[number].append(row)
                sums[number] += length
                break
        else:
            micros.append([row])
            sums.append(length)
    return [np.asarray(rows, dtype=np.int64) for rows in micros]


def dummy_row(batch: TrainBatch) -> TrainBatch:
    """One row of two tokens that weighs nothing, with the streams of `batch`.

    Sharded training gathers parameters in every forward pass, so a process that has fewer
    micro-batches than another runs this.
    """
    streams = {"tokens": Ragged.of([[0, 0]], np.int64)}
    for name in TrainBatch.STREAMS[1:]:
        if getattr(batch, name) is not None:
            streams[name] = Ragged.of([[0.0]], np.float32)
    return TrainBatch(**streams)
