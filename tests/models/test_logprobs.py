"""Sliced, recomputed log-probabilities against the plain log-softmax of whole logits."""

from __future__ import annotations

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LlamaConfig, LlamaForCausalLM

from rmrl.errors import ConfigError
from rmrl.models.linear_head import LinearHead
from rmrl.models.logprobs import ResponseModel, logprobs_from_logits, token_logprobs


def tiny_model(**changes: object) -> LlamaForCausalLM:
    torch.manual_seed(0)
    shape = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
    }
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=200, num_hidden_layers=2, tie_word_embeddings=True, **shape, **changes
        )
    )


def test_two_way_softmax_by_hand():
    logits = torch.tensor([[0.0, math.log(3.0)]])  # p = 1/4, 3/4
    logprobs, _ = logprobs_from_logits(logits, torch.tensor([1]), temperature=1.0)
    assert logprobs.item() == pytest.approx(math.log(0.75), abs=1e-6)
    _, entropy = logprobs_from_logits(logits, torch.tensor([1]), temperature=1.0, entropy="grad")
    assert entropy.item() == pytest.approx(
        -(0.25 * math.log(0.25) + 0.75 * math.log(0.75)), abs=1e-6
    )


def test_temperature_divides_logits_by_hand():
    # logits / 0.5 = (0, log 9): p = 1/10, 9/10
    logprobs, _ = logprobs_from_logits(
        torch.tensor([[0.0, math.log(3.0)]]), torch.tensor([1]), temperature=0.5
    )
    assert logprobs.item() == pytest.approx(math.log(0.9), abs=1e-6)


def test_bfloat16_logits_are_normalised_in_float32():
    logits = torch.randn(4, 1000).bfloat16()
    logprobs, _ = logprobs_from_logits(logits, torch.arange(4), temperature=1.0)
    assert logprobs.dtype == torch.float32
    torch.testing.assert_close(
        logprobs,
        logits.float().log_softmax(-1)[torch.arange(4), torch.arange(4)],
        atol=1e-5,
        rtol=0,
    )


@pytest.mark.parametrize("kept_rows", [0, 10**6])
@pytest.mark.parametrize("slice_rows", [1, 3, 7, 100])
def test_slices_do_not_change_values_or_gradients(slice_rows: int, kept_rows: int):
    torch.manual_seed(1)
    weight = torch.randn(50, 8, requires_grad=True)
    hidden = torch.randn(7, 8, requires_grad=True)
    targets = torch.randint(0, 50, (7,))
    logprobs, entropy = token_logprobs(
        hidden,
        targets,
        head=lambda h: h @ weight.T,
        temperature=0.7,
        entropy="grad",
        slice_rows=slice_rows,
        kept_rows=kept_rows,
    )
    (logprobs.sum() + 0.3 * entropy.sum()).backward()
    got = [weight.grad.clone(), hidden.grad.clone()]
    weight.grad = hidden.grad = None
    log_p = (hidden @ weight.T / 0.7).log_softmax(-1)
    expected = log_p.gather(1, targets[:, None])[:, 0]
    expected_entropy = -(log_p.exp() * log_p).sum(-1)
    (expected.sum() + 0.3 * expected_entropy.sum()).backward()
    torch.testing.assert_close(logprobs, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(entropy, expected_entropy, atol=1e-5, rtol=0)
    torch.testing.assert_close(got, [weight.grad, hidden.grad], atol=1e-5, rtol=1e-5)


def test_gradients_equal_the_float64_formula():
    torch.manual_seed(2)
    logits, targets = torch.randn(4, 9, requires_grad=True), torch.tensor([0, 8, 3, 3])
    logprobs, entropy = logprobs_from_logits(logits, targets, temperature=1.7, entropy="grad")
    (logprobs * torch.arange(4) + entropy * 0.5).sum().backward()
    exact = logits.detach().double().requires_grad_()
    log_p = (exact / 1.7).log_softmax(-1)
    (
        log_p.gather(1, targets[:, None])[:, 0] * torch.arange(4)
        - 0.5 * (log_p.exp() * log_p).sum(-1)
    ).sum().backward()
    torch.testing.assert_close(logits.grad, exact.grad.float(), atol=1e-6, rtol=1e-5)


def test_detached_entropy_carries_no_gradient():
    hidden = torch.randn(3, 8, requires_grad=True)
    weight = torch.randn(20, 8)
    _, entropy = token_logprobs(
        hidden,
        torch.tensor([1, 2, 3]),
        head=lambda h: h @ weight.T,
        temperature=1.0,
        entropy="detached",
        slice_rows=2,
    )
    assert not entropy.requires_grad


def test_energy_by_hand():
    logits = torch.tensor([[0.0, math.log(3.0)]])  # p = 1/4, 3/4; sum of squares 10/16
    with torch.no_grad():
        for target, expected in ((0, 1 - 2 / 4 + 10 / 16), (1, 1 - 6 / 4 + 10 / 16)):
            logprobs, energy = logprobs_from_logits(
                logits, torch.tensor([target]), temperature=1.0, entropy="energy"
            )
            assert energy.tolist() == pytest.approx([expected])
            assert logprobs.exp().item() == pytest.approx((0.25, 0.75)[target])


def test_an_energy_close_to_zero_keeps_its_digits():
    # 1 - p = 1 / (1 + e^8) = 3.3535e-4, and the energy 2 (1 - p)^2; 1 - 2 p + sum of squares has
    # errors of 1e-7 in float32
    with torch.no_grad():
        _, energy = logprobs_from_logits(
            torch.tensor([[8.0, 0.0]]), torch.tensor([0]), temperature=1.0, entropy="energy"
        )
    assert energy.item() == pytest.approx(2 * 3.3535e-4**2, rel=0.01)


@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize("slice_rows", [1, 3, 7, 100])
def test_energies_equal_the_squares_of_a_dense_softmax(slice_rows: int, linear: bool):
    torch.manual_seed(1)
    weight, hidden, targets = torch.randn(50, 8), torch.randn(7, 8), torch.randint(0, 50, (7,))
    head = LinearHead(weight) if linear else lambda hidden_nH: hidden_nH @ weight.T
    options = {"head": head, "temperature": 0.7, "slice_rows": slice_rows}
    with torch.no_grad():
        logprobs, energies = token_logprobs(hidden, targets, entropy="energy", **options)
        plain, _ = token_logprobs(hidden, targets, **options)
    assert torch.equal(logprobs, plain)
    p = (hidden @ weight.T / 0.7).double().softmax(-1)
    expected = 1 - 2 * p.gather(1, targets[:, None])[:, 0] + p.square().sum(-1)
    torch.testing.assert_close(energies.double(), expected, atol=1e-6, rtol=1e-5)
    assert energies.dtype == torch.float32


class Large(TorchDispatchMode):
    """Counts the tensors of a size that are made, those in the place of another left out."""

    def __init__(self, numel: int) -> None:
        super().__init__()
        self.numel = numel
        self.made: set[int] = set()
        self._kept: list[torch.Tensor] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple) else (result,):
            if isinstance(tensor, torch.Tensor) and tensor.numel() >= self.numel:
                self._kept.append(tensor)  # or its address is given away again
                self.made.add(tensor.untyped_storage().data_ptr())
        return result


@torch.no_grad()
def test_energies_make_no_further_tensor_of_the_size_of_a_slice():
    weight, hidden, targets = torch.randn(50, 2), torch.randn(6, 2), torch.randint(0, 50, (6,))
    made: dict[str, int] = {}
    for entropy in ("none", "energy", "detached"):
        with Large(3 * 50) as large:
            token_logprobs(
                hidden,
                targets,
                head=LinearHead(weight),
                temperature=1.0,
                entropy=entropy,
                slice_rows=3,
            )
        made[entropy] = len(large.made)
    assert made["energy"] == made["none"] == 4  # logits of two slices, and both in float32
    assert made["detached"] > 4


def test_energies_are_not_computed_where_gradients_are():
    logits = torch.zeros(1, 2)
    with pytest.raises(AssertionError, match="energies have no gradient"):
        logprobs_from_logits(logits, torch.tensor([0]), temperature=1.0, entropy="energy")


def test_padded_rows_equal_each_row_alone():
    model = tiny_model()
    responses = ResponseModel(model, temperature=0.8, slice_elements=400)  # 2 positions at a time
    rows = [torch.randint(0, 200, (n,)) for n in (9, 5)]
    padded = torch.zeros(2, 9, dtype=torch.long)
    padded[0], padded[1, :5] = rows[0], rows[1]
    # the last 3 tokens of row 0 (positions 5..7 predict them), the last 2 of row 1 (positions 2..3)
    positions, targets = (
        torch.tensor([5, 6, 7, 9 + 2, 9 + 3]),
        torch.cat([rows[0][6:], rows[1][3:]]),
    )
    logprobs, _ = responses(padded, positions, targets)
    alone = []
    for row, first in zip(rows, (6, 3), strict=True):
        log_p = (model(row[None]).logits[0] / 0.8).log_softmax(-1)
        alone += [log_p[i - 1, row[i]] for i in range(first, len(row))]
    torch.testing.assert_close(logprobs, torch.stack(alone), atol=1e-5, rtol=0)


def test_logit_changes_of_other_families_are_applied():
    model = tiny_model()
    model.config.final_logit_softcapping = 2.0
    row = torch.randint(0, 200, (1, 6))
    logprobs, _ = ResponseModel(model, temperature=1.0)(row, torch.tensor([4]), row[0, 5:])
    capped = torch.tanh(model(row).logits[0, 4] / 2.0) * 2.0
    assert logprobs.item() == pytest.approx(capped.log_softmax(-1)[row[0, 5]].item(), abs=1e-5)


def test_an_unknown_change_of_logits_is_refused():
    class Scaled(LlamaForCausalLM):
        def forward(self, *args: object, **kwargs: object):
            out = super().forward(*args, **kwargs)
            out.logits = out.logits * 0.9
            return out

    plain = tiny_model()
    ResponseModel(plain, temperature=1.0).check_head()
    with pytest.raises(ConfigError, match="models of type 'llama' change their logits"):
        ResponseModel(Scaled(plain.config), temperature=1.0).check_head()


def test_whole_logits_are_never_held():
    """The largest tensor kept for the backward pass is far smaller than [N, V] in float32."""
    sizes: list[int] = []
    weight = torch.randn(5000, 8, requires_grad=True)
    hidden = torch.randn(64, 8, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: sizes.append(t.numel()) or t, lambda t: t
    ):
        token_logprobs(
            hidden,
            torch.zeros(64, dtype=torch.long),
            head=lambda h: h @ weight.T,
            temperature=1.0,
            slice_rows=8,
        )
    assert max(sizes, default=0) <= 8 * 64
