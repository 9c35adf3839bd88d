"""What a sleeping engine forgets is given back to the system and reads as zero afterwards."""

from __future__ import annotations

import psutil
import pytest
import torch


@pytest.mark.parametrize("size", [0, 1, 100, 4096, 10_000, 2**20 + 3])
def test_what_is_forgotten_is_zero_and_its_neighbours_are_not(size: int) -> None:
    from rmrl.inference.vllm.cpu_worker import forget

    whole = torch.full((size + 64,), 7, dtype=torch.uint8)
    apart = torch.full((size,), 7, dtype=torch.uint8)
    forget([apart, apart[1:]])
    assert not apart.any()
    assert (whole == 7).all()


def test_its_pages_return_to_the_system() -> None:
    from rmrl.inference.vllm.cpu_worker import forget

    tensor = torch.ones(2**26, dtype=torch.uint8)
    before = psutil.Process().memory_info().rss
    forget([tensor])
    assert before - psutil.Process().memory_info().rss > 2**26 * 0.9
    tensor[:100] = 3
    assert int(tensor.sum()) == 300


def test_a_head_computes_each_row_as_if_it_were_alone() -> None:
    from rmrl.inference.vllm.cpu_worker import HEAD_ROWS, in_blocks, steady_heads

    torch.manual_seed(0)
    head, x_RI = torch.nn.Linear(384, 1), torch.randn(3 * HEAD_ROWS + 5, 384)
    model = torch.nn.Sequential(head)
    with torch.inference_mode():
        expected_RO = head(x_RI)
        assert steady_heads(model) == 1
        whole_RO = model(x_RI)
        torch.testing.assert_close(whole_RO, expected_RO, atol=1e-5, rtol=0)
        for rows in (1, 2, 3, 7, 31, 32, 33, len(x_RI)):
            assert torch.equal(model(x_RI[:rows]), whole_RO[:rows])
        assert torch.equal(model(x_RI[9:]), whole_RO[9:])  # elsewhere in its block
    assert in_blocks(torch.relu, x_RI[:0]).shape == (0, 384)


def test_a_lone_row_is_computed_as_one_of_two() -> None:
    from rmrl.inference.vllm.cpu_worker import pair_lone_rows

    counts: list[int] = []

    def compute(
        x_RI: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        counts.append(len(x_RI))
        return x_RI @ weight.T

    layer = torch.nn.Module()
    layer.cpu_linear = compute  # type: ignore[assignment]
    model = torch.nn.Sequential(layer, torch.nn.Identity())
    assert pair_lone_rows(model) == 1
    assert pair_lone_rows(model) == 0  # once
    weight, x_RI = torch.eye(4), torch.arange(12.0).reshape(3, 4)
    torch.testing.assert_close(layer.cpu_linear(x_RI, weight, None), x_RI)
    torch.testing.assert_close(layer.cpu_linear(x_RI[:1], weight, None), x_RI[:1])
    assert counts == [3, 2]


def test_output_heads_are_widened_and_given_back() -> None:
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.model_executor.layers.logits_processor import LogitsProcessor

    from rmrl.inference.vllm.cpu_worker import widen_heads

    with set_current_vllm_config(VllmConfig()):
        model = torch.nn.Sequential(LogitsProcessor(100), torch.nn.Identity())
    head = torch.nn.Module()
    head.weight = torch.nn.Parameter(torch.randn(100, 16).bfloat16())  # type: ignore[assignment]
    hidden_nH = torch.randn(5, 16).bfloat16()
    exact = hidden_nH.double() @ head.weight.detach().double().T
    before = model[0]._apply_head
    for on in (True, True, False):
        assert widen_heads(model, on=on) == 1
        if on:
            logits_nV = model[0]._apply_head(head, hidden_nH, None).detach()
            torch.testing.assert_close(logits_nV.double(), exact, atol=1e-5, rtol=0)
    assert model[0]._apply_head == before
