"""Checks of rows of many lengths: packed by every attention there is, and with shared prompts,
against padded rows."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from benchmarks.gpu_check.gauges import Watch, fresh, peak_gib
from benchmarks.gpu_check.rig import Numbers, Rig, apart, named, require
from benchmarks.gpu_check.training import FLOOR, engine
from rmrl.models import varlen
from rmrl.types import Ragged, TrainBatch

LENGTHS = 20
GRAPHS = 6
"""That flex attention may compile: itself in evaluation and in training and its mask, each for one
length and then for any."""


def packing_lengths(rig: Rig) -> Numbers:
    """Updates on 20 batches of different lengths: seconds of the first and of the later ones,
    compiled graphs, peak, and log-probabilities, each beside padded rows."""
    batches = [with_lengths(rig, number) for number in range(LENGTHS)]
    numbers: Numbers = {}
    padded: Ragged | None = None
    for name, attention in ways(rig).items():
        model: dict[str, Any] = {}
        if attention is not None:
            model = {"use_remove_padding": True, "attn_implementation": attention}
        fresh(rig)
        torch._dynamo.utils.counters.clear()
        with engine(rig, model={"share_prompts": False, **model}) as policy:
            logprobs = policy.logprobs(batches[0])
            watch = Watch(rig)
            policy.update([batches[0]])
            measured = {"first_s": watch.seconds()}
            watch = Watch(rig)
            for batch in batches[1:]:
                policy.update([batch])
            measured |= {"later_s": watch.seconds() / (LENGTHS - 1), **peak_gib(rig)}
        measured["graphs"] = float(torch._dynamo.utils.counters["stats"]["unique_graphs"])
        if padded is None:
            padded = logprobs
        measured["apart"] = apart(logprobs, padded)["mean"]
        numbers |= named(name, measured)
        require(measured["apart"] <= 3 * FLOOR[rig.dtype], f"{name} has other numbers", numbers)
        require(measured["graphs"] <= GRAPHS, f"{name} compiles again for new lengths", numbers)
    return numbers


def shared_prompts(rig: Rig) -> Numbers:
    """Eight responses to a long prompt: seconds of an update and peak with the prompt computed once
    and eight times, and the same log-probabilities."""
    batch = grouped(rig, prompts=max(1, rig.rows // 8), n=8)
    numbers: Numbers = {}
    results: dict[bool, Ragged] = {}
    for shares in (False, True):
        fresh(rig)
        with engine(rig, model={"share_prompts": shares}) as policy:
            results[shares] = policy.logprobs(batch)
            policy.update([batch])
            watch = Watch(rig)
            policy.update([batch])
            measured = {"s": watch.seconds(), **peak_gib(rig)}
        numbers |= named("once" if shares else "each", measured)
    numbers |= apart(results[True], results[False])
    require(numbers["mean"] <= 3 * FLOOR[rig.dtype], "log-probabilities differ", numbers)
    return numbers


def ways(rig: Rig) -> dict[str, str | None]:
    """Name -> attention of packed rows, None for padded ones; those that run here."""
    if rig.device == "cpu":
        return {"padded": None, "sdpa": "sdpa"}
    attentions: dict[str, str | None] = {"padded": None}
    if not varlen.kernel_problem(getattr(torch, rig.dtype)):
        attentions["varlen"] = varlen.NAME
    if rig.dtype != "float32" and importlib.util.find_spec("flash_attn"):
        attentions["flash"] = "flash_attention_2"
    # Compiles, for a minute and more.
    return {**attentions, "flex": "flex_attention"}


def with_lengths(rig: Rig, seed: int) -> TrainBatch:
    """A batch of the rig whose rows, and their sum, have lengths of their own."""
    return replace(rig, longest=rig.longest - seed % max(1, rig.longest // 2)).batch(seed=seed)


def grouped(rig: Rig, *, prompts: int, n: int) -> TrainBatch:
    """`n` responses of up to a quarter of the rig's length to each of `prompts` prompts of the
    whole length."""
    draw = np.random.default_rng(0)
    rows: list[np.ndarray] = []
    masks: list[np.ndarray] = []
    for _ in range(prompts):
        prompt = draw.integers(5, 1000, rig.longest)
        for _ in range(n):
            length = int(draw.integers(2, max(3, rig.longest // 4)))
            rows.append(np.concatenate([prompt, draw.integers(5, 1000, length)]))
            masks.append(np.ones(length))
    ones = Ragged.of(masks, np.float32)
    return TrainBatch(tokens=Ragged.of(rows, np.int64), response_mask=ones, advantages=ones)
