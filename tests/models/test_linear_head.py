"""Log-probabilities straight from hidden states and the head's matrix: against float64, against
autograd through a module, and what is kept in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from rmrl.models import linear_head
from rmrl.models.linear_head import (
    LinearHead,
    changed_logits,
    kept_elements,
    plain_linear,
    slice_elements,
    wide_linear,
)
from rmrl.models.logprobs import ResponseModel, token_logprobs
from rmrl.models.slice_sizes import elements_within

ROWS, HIDDEN, VOCAB = 23, 16, 131


def problem(dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """Hidden states, weight, bias and targets (first and last token among them)."""
    generator = torch.Generator().manual_seed(3)
    targets = torch.randint(0, VOCAB, (ROWS,), generator=generator)
    targets[:2] = torch.tensor([0, VOCAB - 1])
    leaves = {
        "hidden": torch.randn(ROWS, HIDDEN, generator=generator),
        "weight": torch.randn(VOCAB, HIDDEN, generator=generator),
        "bias": torch.randn(VOCAB, generator=generator),
    }
    tensors = {name: leaf.to(dtype).requires_grad_() for name, leaf in leaves.items()}
    return {**tensors, "targets": targets, "factors": torch.randn(ROWS, generator=generator)}


def results(
    tensors: dict[str, Tensor], head: Callable[[Tensor], Tensor], **options: Any
) -> list[Tensor]:
    """Log-probabilities, entropies and the gradients of hidden states, weight and bias."""
    settings = {"temperature": 0.8, "entropy": "grad", "slice_rows": 5, **options}
    logprobs, entropy = token_logprobs(tensors["hidden"], tensors["targets"], head=head, **settings)
    assert entropy is not None
    loss = logprobs * tensors["factors"]
    if settings["entropy"] == "grad":
        loss = loss + 0.3 * entropy * tensors["factors"]
    loss.sum().backward()
    gradients = [tensors[name].grad for name in ("hidden", "weight", "bias")]
    return [logprobs.detach(), entropy.detach(), *gradients]


def by_module(tensors: dict[str, Tensor], factor: float, softcap: float | None) -> Any:
    def head(hidden: Tensor) -> Tensor:
        logits = nn.functional.linear(hidden, tensors["weight"], tensors["bias"])
        return changed_logits(logits, factor=factor, softcap=softcap)

    return head


@pytest.mark.parametrize("kept_rows", [0, 10**6])
@pytest.mark.parametrize("slice_rows", [1, 5, 23, 100])
@pytest.mark.parametrize(("factor", "softcap"), [(1.0, None), (0.25, None), (1.5, 3.0)])
def test_equals_float64_by_autograd(
    slice_rows: int, kept_rows: int, factor: float, softcap: float | None
) -> None:
    tensors, exact = problem(), problem(torch.float64)
    head = LinearHead(tensors["weight"], tensors["bias"], factor, softcap)
    outputs = results(tensors, head, slice_rows=slice_rows, kept_rows=kept_rows)
    logits = by_module(exact, factor, softcap)(exact["hidden"])
    log_p = (logits / 0.8).log_softmax(-1)
    logprobs = log_p.gather(1, exact["targets"][:, None])[:, 0]
    entropy = -(log_p.exp() * log_p).sum(-1)
    ((logprobs + 0.3 * entropy) * exact["factors"]).sum().backward()
    gradients = [exact[name].grad for name in ("hidden", "weight", "bias")]
    for output, expected in zip(outputs, [logprobs, entropy, *gradients], strict=True):
        assert expected is not None
        torch.testing.assert_close(output.double(), expected.detach(), atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("entropy", ["grad", "detached"])
@pytest.mark.parametrize("factor", [1.0, 0.25])
def test_one_slice_is_bit_equal_to_autograd_through_the_module(factor: float, entropy: str) -> None:
    tensors, other = problem(), problem()
    options = {"slice_rows": 100, "kept_rows": 100, "entropy": entropy}
    head = LinearHead(tensors["weight"], tensors["bias"], factor)
    outputs = results(tensors, head, **options)
    through_module = results(other, by_module(other, factor, None), **options)
    for output, expected in zip(outputs[:4], through_module[:4], strict=True):
        assert torch.equal(output, expected)
    torch.testing.assert_close(outputs[4], through_module[4], atol=1e-6, rtol=1e-6)


def test_slices_give_the_same_log_probabilities_with_and_without_a_gradient() -> None:
    tensors = problem(torch.bfloat16)
    head = LinearHead(tensors["weight"], tensors["bias"])
    options = {"head": head, "temperature": 0.8, "slice_rows": 5}
    trained, _ = token_logprobs(tensors["hidden"], tensors["targets"], **options)
    with torch.no_grad():
        scored, _ = token_logprobs(tensors["hidden"], tensors["targets"], **options)
    assert torch.equal(trained.detach(), scored)


@pytest.mark.parametrize("block", [1, 10 * HIDDEN, 2**21])
def test_wide_logits_are_those_of_float64(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """bfloat16 rounds logits of about 4 to 1/64."""
    monkeypatch.setattr(linear_head, "_WIDENED_ELEMENTS", block)
    operands = problem(torch.bfloat16)
    tensors = [operands[name].detach() for name in ("hidden", "weight", "bias")]
    exact = nn.functional.linear(*(each.double() for each in tensors))
    for bias in (None, tensors[2]):
        logits = wide_linear(*tensors[:2], bias)
        assert logits.dtype == torch.float32
        expected = exact if bias is not None else exact - tensors[2].double()
        torch.testing.assert_close(logits.double(), expected, atol=1e-5, rtol=0)
    rounded = nn.functional.linear(*tensors).double()
    assert (rounded - exact).abs().max() > 1 / 128
    whole = [each.float() for each in tensors]
    assert torch.equal(wide_linear(*whole), nn.functional.linear(*whole))


@pytest.mark.parametrize("kept_rows", [0, 10**6])
def test_a_wide_head_trains_on_logits_that_are_not_rounded(kept_rows: int) -> None:
    errors: dict[bool, float] = {}
    for wide in (False, True):
        tensors = problem(torch.bfloat16)
        head = LinearHead(tensors["weight"], tensors["bias"], wide=wide)
        options = {"entropy": "grad", "kept_rows": kept_rows}
        outputs = results(tensors, head, **options)
        in_float64 = {
            name: tensor.detach().double().requires_grad_()
            if tensor.is_floating_point()
            else tensor
            for name, tensor in tensors.items()
        }
        logits = by_module(in_float64, 1.0, None)(in_float64["hidden"])
        expected = (logits / 0.8).log_softmax(-1).gather(1, tensors["targets"][:, None])[:, 0]
        errors[wide] = float((outputs[0].double() - expected.detach()).abs().max())
        assert outputs[2].dtype == torch.bfloat16
    assert errors[True] < 1e-5
    assert errors[False] > 1e-3


def test_in_bfloat16_slices_add_up_in_float32() -> None:
    """512 slices of one position: autograd would round the matrix's gradient after each."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(512, HIDDEN, generator=generator).bfloat16()
    weight = torch.randn(VOCAB, HIDDEN, generator=generator).bfloat16()
    targets = torch.randint(0, VOCAB, (512,), generator=generator)

    def gradient(make_head: Callable[[Tensor], Any], dtype: torch.dtype, rows: int) -> Tensor:
        leaf = weight.to(dtype, copy=True).requires_grad_()
        logprobs, _ = token_logprobs(
            hidden.to(dtype), targets, head=make_head(leaf), temperature=1.0, slice_rows=rows
        )
        logprobs.sum().backward()
        assert leaf.grad is not None
        assert leaf.grad.dtype == dtype
        return leaf.grad.double()

    def module(leaf: Tensor) -> Any:
        return lambda rows: rows @ leaf.T

    exact = gradient(module, torch.float64, 512)
    scale = exact.abs().mean()
    sliced = (gradient(LinearHead, torch.bfloat16, 1) - exact).abs().mean() / scale
    whole = (gradient(LinearHead, torch.bfloat16, 512) - exact).abs().mean() / scale
    by_autograd = (gradient(module, torch.bfloat16, 1) - exact).abs().mean() / scale
    # Rounding once to bfloat16 costs up to 2**-9 of a number.
    assert sliced < 2**-6
    assert sliced < 1.5 * whole
    assert by_autograd > 3 * sliced


def test_a_frozen_matrix_gets_no_gradient_and_hidden_states_do() -> None:
    tensors = problem()
    tensors["weight"].requires_grad_(False)
    tensors["bias"].requires_grad_(False)
    outputs = results(tensors, LinearHead(tensors["weight"], tensors["bias"]))
    assert outputs[2] is not None
    assert outputs[3] is None
    assert outputs[4] is None


def test_whole_logits_are_never_kept() -> None:
    """The largest tensor kept for the backward pass is far smaller than [N, V]."""
    sizes: list[int] = []
    weight = torch.randn(5000, 8, requires_grad=True)
    hidden = torch.randn(64, 8, requires_grad=True)

    def note(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() != weight.data_ptr():
            sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        token_logprobs(
            hidden,
            torch.zeros(64, dtype=torch.long),
            head=LinearHead(weight),
            temperature=1.0,
            slice_rows=8,
        )
    assert max(sizes) == 64 * 8


def test_size_of_a_slice_by_free_memory() -> None:
    assert slice_elements(torch.device("cpu")) == 2**24
    # 8 GiB / 8 / 12 bytes = 89 million elements; 2**26 is 67 million.
    assert elements_within(8 * 2**30) == 2**26
    assert elements_within(2**30) == 2**24  # at least 2**24
    assert elements_within(80 * 2**30) == 2**28  # at most 2**28
    assert elements_within(0) == 2**24
    assert kept_elements(2**24) == 2**26
    assert kept_elements(2**28) == 2**28


class _Adapted(nn.Linear):
    """A head with something beside its matrix."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__(base.in_features, base.out_features, bias=False)
        self.weight = base.weight
        self.beside = nn.Parameter(torch.ones(base.out_features))

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) + self.beside


def test_a_head_with_an_adapter_or_a_hook_is_called_as_a_module() -> None:
    plain = nn.Linear(4, 9)
    assert plain_linear(plain)
    assert not plain_linear(_Adapted(plain))
    plain.register_forward_hook(lambda module, inputs, output: output)
    assert not plain_linear(plain)


def tied_model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=200,
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            tie_word_embeddings=True,
        )
    )


def test_an_adapter_of_the_head_trains() -> None:
    model = tied_model()
    model.lm_head = _Adapted(model.lm_head)
    logprobs, _ = ResponseModel(model, temperature=1.0)(
        torch.tensor([[4, 8, 15, 16]]), torch.tensor([1, 2]), torch.tensor([15, 16])
    )
    logprobs.sum().backward()
    gradient = model.lm_head.beside.grad
    assert gradient is not None
    # d log p_t / d z_v sums to 0 over v
    assert gradient.abs().sum() > 0.1
    assert abs(float(gradient.sum())) < 1e-4


def test_a_tied_matrix_gets_the_gradients_of_both_its_uses() -> None:
    row, positions = torch.tensor([[4, 8, 15, 16, 23, 42]]), torch.tensor([2, 3, 4])
    targets = row[0, 3:]
    model, other = tied_model(), tied_model()
    responses = ResponseModel(model, temperature=0.8, slice_elements=400, kept_elements=0)
    responses(row, positions, targets)[0].sum().backward()
    log_p = (other(row).logits[0] / 0.8).log_softmax(-1)
    log_p[positions, targets].sum().backward()
    for (name, parameter), expected in zip(
        model.named_parameters(), other.parameters(), strict=True
    ):
        torch.testing.assert_close(parameter.grad, expected.grad, atol=1e-5, rtol=1e-4, msg=name)
