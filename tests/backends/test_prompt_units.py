"""Responses to one prompt as one sequence: which rows, which tokens, and the same numbers as row by
row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rmrl.backends.base import ProcessSettings, TrainSettings
from rmrl.backends.fsdp.engine import FSDPEngine
from rmrl.backends.micro_batches import Limits
from rmrl.backends.objective import response_tokens, shared_tokens
from rmrl.backends.process_group import leave_group
from rmrl.backends.prompt_units import (
    Sharing,
    arrays_of,
    computed_rows,
    cut_units,
    length_of,
    units_of,
)
from rmrl.models.shared_prompts import SharedPrompts
from rmrl.types import Ragged, TrainBatch
from tests.backends.policies import (
    VOCABULARY,
    make_critic_settings,
    make_settings,
    write_policy,
)

CPU = torch.device("cpu")
WIDE = 10**6
"""A hidden size beside which attention costs nothing."""


def batch_of(rows: list[tuple[list[int], list[int]]]) -> TrainBatch:
    """Rows of (prompt, response)."""
    return TrainBatch(
        tokens=Ragged.of([prompt + response for prompt, response in rows], np.int64),
        response_mask=Ragged.of([np.ones(len(response)) for _, response in rows], np.float32),
    )


BATCH = batch_of([([7, 8], [1]), ([9], [2, 3]), ([7, 8], [4, 5, 6])])


def grouped_batch(prompts: int, *, n: int, seed: int) -> TrainBatch:
    """`n` responses to each prompt, in a random order, with advantages, returns and values."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[list[int], list[int]]] = []
    for _ in range(prompts):
        prompt = rng.integers(3, VOCABULARY, rng.integers(4, 15)).tolist()
        for _ in range(n):
            rows.append((prompt, rng.integers(3, VOCABULARY, rng.integers(2, 10)).tolist()))
    batch = batch_of([rows[int(i)] for i in rng.permutation(len(rows))])
    streams: dict[str, Ragged] = {}
    for name in ("advantages", "returns", "values", "old_logprobs", "ref_logprobs"):
        values = [rng.normal(size=n) - 3 for n in batch.response_mask.lengths]
        streams[name] = Ragged.of(values, np.float32)
    return TrainBatch(tokens=batch.tokens, response_mask=batch.response_mask, **streams)


def as_lists(units: list[np.ndarray]) -> list[list[int]]:
    return [unit.tolist() for unit in units]


def test_rows_of_one_prompt_are_a_unit_up_to_its_limit():
    assert as_lists(units_of(BATCH, Sharing(WIDE, None))) == [[0, 2], [1]]
    assert [length_of(BATCH, unit) for unit in units_of(BATCH, Sharing(WIDE, None))] == [6, 3]
    assert as_lists(units_of(BATCH, Sharing(WIDE, 6))) == [[0, 2], [1]]
    assert as_lists(units_of(BATCH, Sharing(WIDE, 5))) == [[0], [1], [2]]


@pytest.mark.parametrize(
    ("prompt", "response", "joined"),
    [(100, 800, 1), (300, 300, 3), (300, 200, 7), (200, 100, 8), (95, 58, 8)],
)
def test_a_long_unit_costs_more_than_the_prompt_it_saves(prompt: int, response: int, joined: int):
    """Eight responses and a width of 576. Timed: sharing with all eight takes 2.7 and 2.1 times as
    long in the first two cases, 0.8 and 0.6 in the next two.

    By hand for the first: 1,700 (2,880 + 2,550) - 900 (2,880 + 1,350) = 5.4M more for a unit,
    900 (2,880 + 450) = 3.0M for a row.
    """
    row = (list(range(prompt)), list(range(response)))
    units = units_of(batch_of([row] * 8), Sharing(576, None))
    assert len(units[0]) == joined


def test_a_unit_by_hand():
    assert arrays_of(BATCH.select([0, 1]), Sharing(WIDE, None)) is None  # nothing to share
    pair = BATCH.select([0, 2])
    units = arrays_of(pair, Sharing(WIDE, None))
    assert units is not None
    assert units.tokens_US.tolist() == [[7, 8, 1, 4, 5, 6]]
    assert units.segments_US.tolist() == [[0, 0, 1, 2, 2, 2]]
    assert units.position_ids_US.tolist() == [[0, 1, 2, 2, 3, 4]]
    # each first response token follows the prompt's last one, which is at 1
    assert units.positions_N.tolist() == [1, 1, 3, 4]
    tokens = shared_tokens(pair, CPU, Sharing(WIDE, None))
    assert tokens is not None
    assert tokens.targets_N.tolist() == [1, 4, 5, 6]
    assert tokens.targets_N.tolist() == response_tokens(pair, CPU).targets_N.tolist()
    assert isinstance(tokens.layout, SharedPrompts)
    assert tokens.layout.mask_B1SS[0, 0].int().tolist() == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 0, 1, 0, 0],
        [1, 1, 0, 1, 1, 0],
        [1, 1, 0, 1, 1, 1],
    ]


def test_micro_batches_hold_whole_units_and_the_same_units_are_found_in_them():
    batch = grouped_batch(6, n=4, seed=1)
    limits = Limits(tokens=90, rows=None)
    micros = cut_units(batch, limits, Sharing(WIDE, limits.tokens))
    assert sorted(np.concatenate(micros).tolist()) == list(range(24))
    padded = 0
    for rows in micros:
        micro = batch.select(rows)
        units = units_of(micro, Sharing(WIDE, 90))
        width = max(length_of(micro, unit) for unit in units)
        assert len(units) * width <= 90
        padded += len(units) * width
    assert padded < batch.tokens.values.size  # fewer than the real tokens of all rows


def test_rows_without_a_common_prompt_are_cut_as_rows():
    batch = batch_of([([3, 4], [5]), ([4, 5], [6, 7]), ([8], [9])])
    limits = Limits(tokens=100, rows=None)
    assert as_lists(cut_units(batch, limits, Sharing(WIDE, limits.tokens))) == [[1, 0, 2]]
    assert shared_tokens(batch, CPU, Sharing(WIDE, 100)) is None


ANSWERS = batch_of([([7, 8], [1]), ([9], [2, 3]), ([7, 8], [4]), ([7], [8]), ([9], [2, 3])])


def test_answers_of_one_token_to_one_prompt_are_computed_once():
    """Both answers to 7 8 are read at its end. Longer responses stay rows, and so does an answer
    whose own token is read."""
    index, places = computed_rows(ANSWERS)
    assert (index.tolist(), places.tolist()) == ([0, 1, 3, 4], [0, 1, 0, 2, 3])
    assert computed_rows(ANSWERS, with_responses=True)[0].tolist() == [0, 1, 2, 3, 4]
    padded = response_tokens(ANSWERS, CPU)
    assert padded.input_ids_BS.tolist() == [[7, 8, 1], [9, 2, 3], [7, 8, 0], [9, 2, 3]]
    assert padded.positions_N.tolist() == [1, 3, 4, 1, 6, 9, 10]
    packed = response_tokens(ANSWERS, CPU, packed=True)
    assert packed.input_ids_BS.tolist() == [[7, 8, 1, 9, 2, 3, 7, 8, 9, 2, 3]]
    assert packed.positions_N.tolist() == [1, 3, 4, 1, 6, 8, 9]
    assert padded.targets_N.tolist() == packed.targets_N.tolist() == [1, 2, 3, 4, 8, 2, 3]
    # Three tokens with a mask for the pair cost more than its row.
    assert shared_tokens(ANSWERS.select([0, 2]), CPU, Sharing(WIDE, None)) is None
    assert shared_tokens(ANSWERS.select([0, 2]), CPU, Sharing(WIDE, None), own=True) is not None


def engine(settings: TrainSettings) -> FSDPEngine:
    return FSDPEngine(settings=settings, process=ProcessSettings(threads=1, timeout_s=60))


@pytest.fixture(autouse=True)
def _leave_group() -> Iterator[None]:
    yield
    leave_group()


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy"))


@pytest.mark.parametrize("tokens", [10_000, 60])
def test_shared_prompts_train_as_rows(policy: Path, tokens: int):
    """Logprobs, metrics and weights after three steps are those of whole rows."""
    apart = engine(
        make_settings(policy, model={"share_prompts": False}, ppo_max_token_len_per_gpu=tokens)
    )
    shared = engine(make_settings(policy, ppo_max_token_len_per_gpu=tokens))
    limits = Limits(tokens=tokens, rows=None)
    assert shared._part.sharing(limits) is not None
    assert apart._part.sharing(limits) is None
    batch = grouped_batch(3, n=4, seed=3)
    expected = apart.logprobs(batch).values
    np.testing.assert_allclose(shared.logprobs(batch).values, expected, atol=1e-5)
    for seed in range(3):
        step = grouped_batch(3, n=4, seed=seed)
        wanted = {
            name: pytest.approx(value, rel=1e-4, abs=1e-6)
            for name, value in apart.update([step]).items()
        }
        assert shared.update([step]) == wanted
    moved = apart.logprobs(batch).values
    assert np.abs(moved - expected).max() > 1e-3
    np.testing.assert_allclose(shared.logprobs(batch).values, moved, atol=1e-4)
    for ours, theirs in zip(
        shared.logprobs_and_energies(batch), apart.logprobs_and_energies(batch), strict=True
    ):
        np.testing.assert_allclose(ours.values, theirs.values, atol=1e-4)


@pytest.mark.parametrize(
    "layout",
    [{}, {"share_prompts": False}, {"use_remove_padding": True, "attn_implementation": "varlen"}],
)
def test_answers_of_one_token_train_as_rows(policy: Path, layout: dict[str, object]):
    """Each row alone is a micro-batch of its own in `single`, so nothing is computed once there."""
    rng = np.random.default_rng(4)
    prompts = [rng.integers(3, VOCABULARY, size).tolist() for size in (6, 9, 4)]
    answers = batch_of([(prompt, [token]) for prompt in prompts for token in (5, 6, 7)])
    streams = [Ragged.of(rng.normal(size=(9, 1)), np.float32) for _ in range(2)]
    batch = replace(answers, advantages=streams[0], ref_logprobs=streams[1])
    single = engine(make_settings(policy, ppo_micro_batch_size_per_gpu=1))
    once = engine(make_settings(policy, model=layout))
    computed: list[int] = []
    once._part.language_model.base_model.register_forward_pre_hook(
        lambda _, __, inputs: computed.append(inputs["input_ids"].numel()), with_kwargs=True
    )
    before = single.logprobs(batch).values
    np.testing.assert_allclose(once.logprobs(batch).values, before, atol=1e-5)
    assert computed == [22 if once._part.packed else 30]  # 7 + 10 + 5, or 3 times 10
    single.update([batch])
    once.update([batch])
    moved = single.logprobs(batch).values
    assert np.abs(moved - before).max() > 1e-3
    np.testing.assert_allclose(once.logprobs(batch).values, moved, atol=1e-5)


def test_a_prompt_goes_through_the_model_once(policy: Path):
    batch = grouped_batch(1, n=6, seed=5)
    computed: list[int] = []
    shared = engine(make_settings(policy))
    shared._part.language_model.base_model.register_forward_pre_hook(
        lambda _, __, given: computed.append(given["input_ids"].numel()), with_kwargs=True
    )
    shared.logprobs(batch)
    prompt = int(batch.tokens.lengths[0] - batch.response_mask.lengths[0])
    assert computed == [prompt + int(batch.response_mask.lengths.sum())]


def test_values_of_shared_prompts(policy: Path):
    apart = engine(make_critic_settings(policy, model={"share_prompts": False}))
    shared = engine(make_critic_settings(policy))
    assert shared._part.sharing(Limits(tokens=None, rows=None)) is not None
    assert shared._part.sharing(Limits(tokens=None, rows=2)) is None
    batch = grouped_batch(3, n=4, seed=6)
    for _ in range(3):
        apart.update([batch])
        shared.update([batch])
    np.testing.assert_allclose(shared.values(batch).values, apart.values(batch).values, atol=1e-4)
