"""What every advantage estimator and every policy loss must hold, over all names of both tables."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rmrl.algorithms import (
    ADVANTAGES,
    LOSSES,
    estimator_named,
    loss_named,
)
from rmrl.algorithms.aggregate import AGGREGATION_MODES, divisor, token_weights, total_weight
from rmrl.algorithms.losses.total import total_loss
from rmrl.config.schema.actor import ActorConfig, PolicyLossConfig
from rmrl.config.schema.algorithm import AlgorithmConfig
from rmrl.errors import ConfigError
from rmrl.registry import Registry
from rmrl.types import AdvantageInputs, Advantages, LossInputs

ROOT = Path(__file__).resolve().parents[2]

B, T = 6, 5
LENGTHS_B = torch.tensor([5, 3, 1, 0, 4, 2])
MASK_BT = (torch.arange(T) < LENGTHS_B[:, None]).float()
PROMPT_TOKENS_B1 = torch.tensor([10.0, 5.0, 10.0, 5.0, 10.0, 5.0])[:, None]
"""Counted tokens of the rows 0, 2, 4 and of the rows 1, 3, 5, which answer one prompt each."""
PER_ROW = (
    "rewards_B",
    "group_ids_B",
    "response_mask_BT",
    "token_rewards_BT",
    "values_BT",
    "scores_BC",
    "baseline_rewards_B",
    "energies_BT",
)
CUT_DEPENDENT_LOSSES = [name for name in LOSSES if loss_named(name).depends_on_cut]
CUT_FREE_LOSSES = [name for name in LOSSES if not loss_named(name).depends_on_cut]


def advantage_inputs(name: str, garbage: float = 0.0) -> AdvantageInputs:
    """Random numbers, the same in every call, as far as the estimator takes them; `garbage` stands
    outside the mask."""
    generator = torch.Generator().manual_seed(0)

    def stream() -> torch.Tensor:
        return torch.randn(B, T, generator=generator).where(MASK_BT > 0, garbage)

    scores_BC = torch.randn(B, 2, generator=generator)
    scores_BC[2, 1] = math.nan
    return AdvantageInputs(
        rewards_B=torch.randn(B, generator=generator),
        group_ids_B=torch.tensor([3, 8, 3, 8, 3, 5]),
        response_mask_BT=MASK_BT.clone(),
        token_rewards_BT=stream() if estimator_named(name).token_rewards else None,
        values_BT=stream(),
        scores_BC=scores_BC,
        weights_C=torch.tensor([1.0, 0.5]),
        baseline_rewards_B=torch.tensor([0.1, -0.3, math.nan, 0.2, 0.0, 0.4]),
        energies_BT=stream().abs(),
    )


def rows_of(inputs: AdvantageInputs, index: torch.Tensor) -> AdvantageInputs:
    given = {field: getattr(inputs, field) for field in PER_ROW}
    return replace(
        inputs, **{field: tensor[index] for field, tensor in given.items() if tensor is not None}
    )


def loss_inputs(garbage: float = 0.0) -> LossInputs:
    generator = torch.Generator().manual_seed(1)

    def stream(scale: float = 0.3) -> torch.Tensor:
        return (scale * torch.randn(B, T, generator=generator) - 1).where(MASK_BT > 0, garbage)

    return LossInputs(
        logprobs_BT=stream().requires_grad_(),
        old_logprobs_BT=stream(),
        advantages_BT=stream(2.0),
        mask_BT=MASK_BT.clone(),
        ref_logprobs_BT=stream(),
        entropy_BT=stream(),
    )


def part_of(inputs: LossInputs, rows: slice, width: int) -> LossInputs:
    given = {f.name: getattr(inputs, f.name) for f in fields(inputs)}
    return replace(
        inputs, **{key: tensor[rows, :width] for key, tensor in given.items() if tensor is not None}
    )


def settings_of(name: str, **changes: object) -> ActorConfig:
    """Without the random part of the losses that have one."""
    return ActorConfig(
        policy_loss=PolicyLossConfig(loss_mode=name, clip_cov_ratio=0.0, kl_cov_ratio=0.0),
        **changes,
    )


@pytest.mark.parametrize("name", ADVANTAGES)
def test_advantages_shape_padding_and_metrics(name: str) -> None:
    found = ADVANTAGES[name](advantage_inputs(name, float("nan")), settings=AlgorithmConfig())
    assert isinstance(found, Advantages)
    for tensor_BT in (found.advantages_BT, found.returns_BT):
        if tensor_BT is not None:
            assert tensor_BT.shape == (B, T)
            assert tensor_BT.dtype == torch.float32
            assert tensor_BT.isfinite().all()
            assert (tensor_BT[MASK_BT == 0] == 0).all()
    assert found.advantages_BT.abs().max() > 0.1
    assert all(
        isinstance(value, float) and math.isfinite(value) for value in found.metrics.values()
    )


def with_holes(stream_BT: torch.Tensor | None, fill: float) -> torch.Tensor | None:
    """The stream with holes before, inside and behind each response."""
    if stream_BT is None:
        return None
    wide_BT = torch.full((B, 2 * T), fill)
    for row, length in enumerate(LENGTHS_B.tolist()):
        wide_BT[row, HOLED_T[:length]] = stream_BT[row, :length].detach()
    return wide_BT


HOLED_T = torch.tensor([1, 4, 5, 7, 8])
"""Where `with_holes` puts the tokens."""


@pytest.mark.parametrize("name", ADVANTAGES)
def test_holes_change_no_advantage(name: str) -> None:
    """NaN in every hole: what a tool wrote has no advantage and is in no statistic."""
    inputs = advantage_inputs(name)
    streams = ("token_rewards_BT", "values_BT", "energies_BT")
    holed = replace(
        inputs,
        response_mask_BT=with_holes(MASK_BT, 0.0),
        **{stream: with_holes(getattr(inputs, stream), math.nan) for stream in streams},
    )
    plain = ADVANTAGES[name](inputs, settings=AlgorithmConfig())
    result = ADVANTAGES[name](holed, settings=AlgorithmConfig())
    expected_BT = with_holes(plain.advantages_BT, 0.0)
    torch.testing.assert_close(result.advantages_BT, expected_BT, rtol=1e-6, atol=1e-7)
    if plain.returns_BT is not None:
        torch.testing.assert_close(result.returns_BT, with_holes(plain.returns_BT, 0.0))
    assert result.metrics == pytest.approx(plain.metrics, rel=1e-6)


@pytest.mark.parametrize("name", ADVANTAGES)
def test_advantages_are_deterministic_and_change_no_input(name: str) -> None:
    inputs = advantage_inputs(name)
    first, second = (ADVANTAGES[name](inputs, settings=AlgorithmConfig()) for _ in range(2))
    assert torch.equal(first.advantages_BT, second.advantages_BT)
    for before, field in zip(
        (getattr(advantage_inputs(name), f.name) for f in fields(inputs)),
        fields(inputs),
        strict=True,
    ):
        assert before is None or torch.equal(
            before.nan_to_num(7), getattr(inputs, field.name).nan_to_num(7)
        )


@pytest.mark.parametrize("name", ADVANTAGES)
def test_advantages_do_not_depend_on_row_order(name: str) -> None:
    inputs, order = advantage_inputs(name), torch.tensor([4, 0, 3, 5, 2, 1])
    shuffled = rows_of(inputs, order)
    expected_BT = ADVANTAGES[name](inputs, settings=AlgorithmConfig()).advantages_BT[order]
    torch.testing.assert_close(
        ADVANTAGES[name](shuffled, settings=AlgorithmConfig()).advantages_BT,
        expected_BT,
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize("name", ADVANTAGES)
def test_advantages_of_an_empty_batch(name: str) -> None:
    inputs = advantage_inputs(name)
    empty = rows_of(inputs, torch.zeros(0, dtype=torch.long))
    assert ADVANTAGES[name](empty, settings=AlgorithmConfig()).advantages_BT.shape == (0, T)


@pytest.mark.parametrize("name", ADVANTAGES)
def test_only_group_estimators_learn_nothing_from_groups_of_one(name: str) -> None:
    alone = replace(advantage_inputs(name), group_ids_B=torch.arange(B))
    found_BT = ADVANTAGES[name](alone, settings=AlgorithmConfig()).advantages_BT
    assert bool((found_BT == 0).all()) == estimator_named(name).group


@pytest.mark.parametrize("name", ADVANTAGES)
def test_the_descriptor_states_what_an_estimator_needs(name: str) -> None:
    def refuses(**changes: object) -> bool:
        try:
            ADVANTAGES[name](replace(advantage_inputs(name), **changes), settings=AlgorithmConfig())
        except ConfigError:
            return True
        return False

    stated = estimator_named(name)
    assert not refuses(token_rewards_BT=None)
    assert refuses(token_rewards_BT=torch.ones(B, T)) != stated.token_rewards
    assert refuses(values_BT=None) == stated.values
    assert refuses(baseline_rewards_B=None) == stated.baseline
    assert refuses(scores_BC=None, weights_C=None) == stated.components
    assert refuses(energies_BT=None) == stated.energies
    assert not stated.problems(AlgorithmConfig())


@pytest.mark.parametrize("name", LOSSES)
def test_loss_shape_padding_gradient_and_sums(name: str) -> None:
    inputs = loss_inputs(float("nan"))
    settings = ActorConfig(
        policy_loss=PolicyLossConfig(loss_mode=name), use_kl_loss=True, entropy_coeff=0.01
    )
    loss_BT, metrics = total_loss(inputs, settings=settings)
    loss_BT.sum().backward()
    assert loss_BT.shape == (B, T)
    assert loss_BT.isfinite().all()
    assert inputs.logprobs_BT.grad is not None
    assert inputs.logprobs_BT.grad.isfinite().all()
    assert (inputs.logprobs_BT.grad[MASK_BT == 0] == 0).all()
    assert (inputs.logprobs_BT.grad[MASK_BT > 0] != 0).any()
    assert {"policy_loss", "entropy", "ref_kl", "ratio", "kl"} <= metrics.keys()
    for value in metrics.values():
        assert value.shape == ()
        assert not value.requires_grad
        assert value.isfinite()


@pytest.mark.parametrize("name", LOSSES)
def test_holes_change_no_loss(name: str) -> None:
    """NaN in every hole: no loss, no gradient, no KL and no entropy there."""
    inputs = loss_inputs()
    holed = LossInputs(
        mask_BT=with_holes(MASK_BT, 0.0),
        **{
            field.name: with_holes(getattr(inputs, field.name), math.nan)
            for field in fields(inputs)
            if field.name != "mask_BT" and getattr(inputs, field.name) is not None
        },
    )
    holed.logprobs_BT.requires_grad_()
    settings = replace(settings_of(name), use_kl_loss=True, entropy_coeff=0.01)
    losses: list[torch.Tensor] = []
    gradients: list[torch.Tensor] = []
    sums: list[dict[str, float]] = []
    for each in (inputs, holed):
        loss_BT, metrics = total_loss(each, settings=settings)
        losses.append(loss_BT.detach())
        gradients.append(torch.autograd.grad(loss_BT.sum(), each.logprobs_BT)[0])
        sums.append({key: value.item() for key, value in metrics.items()})
    torch.testing.assert_close(losses[1], with_holes(losses[0], 0.0))
    torch.testing.assert_close(gradients[1], with_holes(gradients[0], 0.0))
    assert sums[1] == pytest.approx(sums[0], rel=1e-5)


@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_sums_add_up_over_micro_batches(name: str) -> None:
    settings, inputs = settings_of(name), loss_inputs()
    whole_BT, whole = LOSSES[name](inputs, settings=settings)
    halves = [part_of(inputs, rows, T) for rows in (slice(0, 2), slice(2, None))]
    (top_BT, top), (bottom_BT, bottom) = (LOSSES[name](half, settings=settings) for half in halves)
    torch.testing.assert_close(torch.cat([top_BT, bottom_BT]), whole_BT)
    assert {key: (top[key] + bottom[key]).item() for key in whole} == pytest.approx(
        {key: whole[key].item() for key in whole}, rel=1e-5
    )


@pytest.mark.parametrize("mode", AGGREGATION_MODES)
@pytest.mark.parametrize("name", CUT_FREE_LOSSES)
def test_a_batch_cut_into_micro_batches_has_the_same_loss_and_gradient(
    name: str, mode: str
) -> None:
    settings = ActorConfig(
        policy_loss=PolicyLossConfig(loss_mode=name), use_kl_loss=True, entropy_coeff=0.01
    )

    def loss_and_gradient(cuts: list[slice]) -> tuple[torch.Tensor, torch.Tensor]:
        inputs = replace(
            loss_inputs(), rollout_weights_BT=torch.linspace(0.5, 1.5, B * T).reshape(B, T)
        )

        def weights(rows: slice, part: LossInputs) -> dict[str, Any]:
            tokens_BT = None
            if mode == "prompt-mean":
                tokens_BT = PROMPT_TOKENS_B1[rows].expand_as(part.mask_BT)
            return {"max_length": 9, "unit_tokens_BT": tokens_BT}

        parts = [
            part_of(inputs, rows, max(1, int(LENGTHS_B[rows].max()))) for rows in cuts
        ]  # each padded to its own longest row
        total = sum(
            (
                total_loss(part, settings=settings)[0]
                * token_weights(part.mask_BT, mode, **weights(rows, part))
            ).sum()
            for rows, part in zip(cuts, parts, strict=True)
        )
        weight = sum(
            total_weight(part.mask_BT, mode, **weights(rows, part)).item()
            for rows, part in zip(cuts, parts, strict=True)
        )
        loss = total / divisor(weight, mode)
        return loss.detach(), torch.autograd.grad(loss, inputs.logprobs_BT)[0]

    whole, whole_gradient_BT = loss_and_gradient([slice(0, B)])
    cut, cut_gradient_BT = loss_and_gradient([slice(0, 1), slice(1, 4), slice(4, B)])
    torch.testing.assert_close(cut, whole)
    torch.testing.assert_close(cut_gradient_BT, whole_gradient_BT)


@pytest.mark.parametrize("name", CUT_DEPENDENT_LOSSES)
def test_the_exceptions_are_exceptions(name: str) -> None:
    choice = PolicyLossConfig(
        loss_mode=name, clip_cov_ratio=0.4, clip_cov_lb=0.0, clip_cov_ub=99.0, kl_cov_ratio=0.4
    )
    whole_BT, *halves = (
        LOSSES[name](part_of(loss_inputs(), rows, T), settings=ActorConfig(policy_loss=choice))[0]
        for rows in (slice(0, B), slice(0, 2), slice(2, B))
    )
    assert not torch.allclose(torch.cat(halves), whole_BT)


@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_deterministic_and_touch_no_random_state(name: str) -> None:
    settings = ActorConfig(
        policy_loss=PolicyLossConfig(
            loss_mode=name, clip_cov_ratio=0.2, clip_cov_lb=-9, clip_cov_ub=9, kl_cov_ratio=0.2
        )
    )
    before = torch.random.get_rng_state()
    first_BT, second_BT = (LOSSES[name](loss_inputs(), settings=settings)[0] for _ in range(2))
    assert torch.equal(first_BT, second_BT)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("name", LOSSES)
def test_on_policy_every_loss_has_the_policy_gradient(name: str) -> None:
    inputs = loss_inputs()
    inputs = replace(inputs, old_logprobs_BT=inputs.logprobs_BT.detach().clone())
    loss_BT, metrics = LOSSES[name](inputs, settings=settings_of(name))
    gradient_BT = torch.autograd.grad(loss_BT.sum(), inputs.logprobs_BT)[0]
    torch.testing.assert_close(gradient_BT, -inputs.advantages_BT * MASK_BT)
    assert metrics["ratio"].item() == MASK_BT.sum().item()
    assert metrics["kl"].item() == 0


def test_importing_the_tables_imports_no_torch() -> None:
    code = (
        "import sys, rmrl.algorithms; print([m for m in ('torch', 'ray', 'vllm', 'transformers') if"
        " m in sys.modules])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True
        ).stdout.strip()
        == "[]"
    )


@pytest.mark.parametrize(
    ("heading", "table"), [("## Advantages", ADVANTAGES), ("## Policy losses", LOSSES)]
)
def test_every_name_has_a_line_with_its_paper_in_the_docs(
    heading: str, table: Registry[object]
) -> None:
    text = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
    section = text[text.index(heading) :].partition("\n## ")[0]
    rows = [line.split("|") for line in section.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row[1])} == set(table)
    assert all("arxiv.org/abs/" in row[2] for row in rows)


def test_the_docs_name_every_recipe() -> None:
    text = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
    section = text[text.index("## Recipes") :].partition("\n## ")[0]
    named = {
        name
        for line in section.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`(\w+)`", line.split("|")[1])
    }
    assert named == {file.stem for file in (ROOT / "configs" / "recipe").glob("*.yaml")}
