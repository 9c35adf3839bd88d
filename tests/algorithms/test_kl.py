"""KL estimators and the coefficient's controller."""

from __future__ import annotations

import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rmrl.algorithms import kl
from rmrl.algorithms.kl import KL_ESTIMATORS, KL_NAMES, KLController, token_kl
from rmrl.config.plain_checks import keys_of
from rmrl.config.schema import Config
from rmrl.config.schema.algorithm import KLControlConfig
from rmrl.config.schema.fields import rule_of
from rmrl.errors import ConfigError


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("kl", [0.5, -0.5]),
        ("abs", [0.5, 0.5]),
        ("mse", [0.125, 0.125]),
        ("low_var_kl", [math.exp(-0.5) - 1 + 0.5, math.exp(0.5) - 1 - 0.5]),  # 0.10653, 0.14872
    ],
)
def test_hand_computed(kind: str, expected: list[float]) -> None:
    kl_T = token_kl(torch.tensor([-1.0, -1.5]), torch.tensor([-1.5, -1.0]), kind=kind)
    torch.testing.assert_close(kl_T, torch.tensor(expected))


@given(log_ratio=st.floats(-100, 100, width=32))
def test_k3_is_finite_bounded_and_never_negative(log_ratio: float) -> None:
    value = token_kl(torch.tensor(0.0), torch.tensor(log_ratio), kind="low_var_kl").item()
    assert 0.0 <= value <= 10.0


def test_k3_keeps_its_digits_near_zero() -> None:
    # d^2 / 2 = 5e-9, which exp(d) - d - 1 in float32 rounds to 0 or 1e-7
    assert token_kl(
        torch.tensor(0.0), torch.tensor(1e-4), kind="low_var_kl"
    ).item() == pytest.approx(5e-9, rel=0.05)


def test_unbiased_estimators_average_to_the_kl() -> None:
    policy, reference = torch.tensor([0.7, 0.3]), torch.tensor([0.5, 0.5])
    exact = (policy * (policy / reference).log()).sum()
    for kind in ("kl", "low_var_kl"):
        torch.testing.assert_close(
            (policy * token_kl(policy.log(), reference.log(), kind=kind)).sum(), exact
        )


def test_as_a_loss_k2_has_the_gradient_of_the_kl_and_k1_none() -> None:
    logits = torch.tensor([0.8, -0.1, 0.3], requires_grad=True)
    reference = torch.tensor([0.2, 0.5, 0.3]).log()

    def expected_gradient(kind: str) -> torch.Tensor:
        logprobs = logits.log_softmax(0)
        return torch.autograd.grad(
            (logprobs.exp().detach() * token_kl(logprobs, reference, kind=kind)).sum(), logits
        )[0]

    logprobs = logits.log_softmax(0)
    exact = torch.autograd.grad((logprobs.exp() * (logprobs - reference)).sum(), logits)[0]
    torch.testing.assert_close(expected_gradient("mse"), exact)
    torch.testing.assert_close(expected_gradient("kl"), torch.zeros(3))


def test_unknown_estimator_names_the_known_ones() -> None:
    names = re.escape("abs, abs+, k1, k1+, k2, k2+, k3, k3+, kl, kl+, low_var_kl")
    with pytest.raises(ConfigError, match=f"'low_var_kl'.*{names}"):
        token_kl(torch.zeros(1), torch.zeros(1), kind="low_var")
    assert tuple(KL_ESTIMATORS) == KL_NAMES


@pytest.mark.parametrize("kind", [name for name in KL_NAMES if name.endswith("+")])
def test_straight_through_has_the_value_of_its_name_and_the_gradient_of_k2(kind: str) -> None:
    logprobs = torch.tensor([-1.0, -1.5, -0.3], requires_grad=True)
    reference = torch.tensor([-1.5, -1.0, -9.0])
    found = token_kl(logprobs, reference, kind=kind)
    torch.testing.assert_close(
        found.detach(), token_kl(logprobs.detach(), reference, kind=kind[:-1])
    )
    # the gradient of d^2 / 2 is the difference itself, even where the estimate is bounded or has
    # none of its own
    torch.testing.assert_close(
        torch.autograd.grad(found.sum(), logprobs)[0], torch.tensor([0.5, -0.5, 8.7])
    )


def test_straight_through_low_var_kl_is_the_gradient_of_the_kl_on_policy() -> None:
    logits = torch.tensor([0.8, -0.1, 0.3], requires_grad=True)
    reference = torch.tensor([0.2, 0.5, 0.3]).log()
    logprobs = logits.log_softmax(0)
    found = torch.autograd.grad(
        (logprobs.exp().detach() * token_kl(logprobs, reference, kind="low_var_kl+")).sum(), logits
    )[0]
    logprobs = logits.log_softmax(0)
    exact = torch.autograd.grad((logprobs.exp() * (logprobs - reference)).sum(), logits)[0]
    torch.testing.assert_close(found, exact)


def adaptive(**changes: object) -> KLController:
    return KLController(
        KLControlConfig(
            **{"type": "adaptive", "kl_coef": 0.1, "horizon": 1000, "target_kl": 0.5, **changes}
        )
    )


def test_adaptive_coefficient_follows_the_error() -> None:
    controller = adaptive()
    controller.update(0.55, num_responses=100)  # error 0.1: 0.1 * (1 + 0.1 * 100 / 1000)
    assert controller.coefficient == pytest.approx(0.101)
    controller.update(0.5, num_responses=100)  # on target
    assert controller.coefficient == pytest.approx(0.101)


def test_adaptive_error_is_clipped_at_a_fifth() -> None:
    up, down = adaptive(), adaptive()
    up.update(50.0, num_responses=100)
    down.update(0.0, num_responses=100)
    assert up.coefficient == pytest.approx(0.1 * 1.02)
    assert down.coefficient == pytest.approx(0.1 * 0.98)


def test_a_batch_of_many_horizons_does_not_end_the_coefficient_at_0() -> None:
    controller = adaptive()
    controller.update(0.0, num_responses=10_000)  # 1 - 0.2 * 10 horizons would be below 0
    assert controller.coefficient == pytest.approx(0.1 * 0.8)
    controller.update(50.0, num_responses=10_000)
    assert controller.coefficient == pytest.approx(0.1 * 0.8 * 1.2)


def test_the_coefficient_does_not_fade_away_in_a_long_run() -> None:
    controller = adaptive()
    for _ in range(5000):
        controller.update(0.0, num_responses=1000)
    assert controller.coefficient == pytest.approx(0.1 * 1e-4)
    for _ in range(60):  # 1.2 ** 51 > 1e4
        controller.update(50.0, num_responses=1000)
    assert controller.coefficient > 0.1


def test_a_coefficient_of_0_in_an_old_checkpoint_comes_back() -> None:
    controller = adaptive()
    controller.load_state_dict({"coefficient": 0.0})
    assert controller.coefficient == pytest.approx(0.1 * 1e-4)


def test_a_kl_that_is_no_number_leaves_the_coefficient() -> None:
    controller = adaptive()
    controller.update(math.nan, num_responses=1000)
    assert controller.coefficient == 0.1


def test_low_var_kl_reaches_its_bound_where_the_text_says() -> None:
    """The roots of exp(d) - 1 - d = 10, by bisection, stand rounded in the module's text; beyond
    them there is no gradient."""

    def root(low: float, high: float) -> float:
        for _ in range(200):
            middle = (low + high) / 2
            same_side = (math.exp(middle) - 1 - middle > 10) == (math.exp(low) - 1 - low > 10)
            low, high = (middle, high) if same_side else (low, middle)
        return low

    upper = root(0.0, 5.0)
    lower = root(-20.0, 0.0)
    assert upper == pytest.approx(2.61087, abs=1e-4)
    assert lower == pytest.approx(-10.99998, abs=1e-4)
    assert f"d > {upper:.3f} or d < {lower:.0f}" in str(kl.__doc__)
    for bound, outwards in ((upper, 1e-3), (lower, -1e-3)):
        for d, beyond in ((bound + outwards, True), (bound - outwards, False)):
            logprob = torch.tensor(0.0, requires_grad=True)
            value = token_kl(logprob, torch.tensor(d), kind="low_var_kl")
            assert (value.item() == 10.0) == beyond
            assert (torch.autograd.grad(value, logprob)[0].item() == 0.0) == beyond


def test_fixed_coefficient_stays_and_ignores_old_state() -> None:
    controller = KLController(KLControlConfig(kl_coef=0.02))
    controller.update(9.0, num_responses=1000)
    controller.load_state_dict({"coefficient": 7.0})
    assert controller.coefficient == 0.02


def test_adaptive_state_round_trip() -> None:
    first, second = adaptive(), adaptive()
    first.update(0.9, num_responses=500)
    second.load_state_dict(first.state_dict())
    assert second.coefficient == first.coefficient == pytest.approx(0.11)


@pytest.mark.parametrize(
    "changes", [{"type": "adaptve"}, {"horizon": 0}, {"target_kl": -1.0}, {"kl_coef": 0.0}]
)
def test_bad_settings_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.kl_ctrl\."):
        adaptive(**changes)


def test_both_names_of_an_estimator_are_the_same():
    assert KL_ESTIMATORS["k1"] is KL_ESTIMATORS["kl"]
    assert KL_ESTIMATORS["k2"] is KL_ESTIMATORS["mse"]
    assert KL_ESTIMATORS["k3"] is KL_ESTIMATORS["low_var_kl"]


def test_every_choice_that_the_configuration_accepts_is_an_estimator():
    rules = {key: rule_of(field) for key, field in keys_of(Config())}
    choices: dict[str, set[str | None]] = {}
    for key in ("actor_rollout_ref.actor.kl_loss_type", "algorithm.kl_penalty"):
        rule = rules[key]
        assert rule is not None
        choices[key] = set(rule.choices)
        assert {"kl", "abs", "mse", "low_var_kl", "k1", "k2", "k3"} <= choices[key]
        assert choices[key] <= set(KL_NAMES)
    assert set(choices["actor_rollout_ref.actor.kl_loss_type"]) == set(KL_NAMES)


def test_low_var_kl_bounds_the_log_ratio_on_both_sides() -> None:
    """Beyond 20 the result is held at 10 anyway; the bound keeps the gradient free of NaN."""
    logprobs = torch.tensor([0.0, -1000.0, 0.0], requires_grad=True)
    reference = torch.tensor([-1000.0, 0.0, -math.inf])
    estimate = token_kl(logprobs, reference, kind="low_var_kl")
    assert estimate.tolist() == [10.0, 10.0, 10.0]
    assert torch.autograd.grad(estimate.sum(), logprobs)[0].tolist() == [0.0, 0.0, 0.0]
