"""Flex attention, compiled, keeps packed rows apart."""

from __future__ import annotations

import shutil

import pytest
import torch

from rmrl.models.logprobs import ResponseModel
from rmrl.models.packing import (
    set_attention,
)
from tests.models.test_packing import padded_and_packed, tiny_model


# compiles a kernel
@pytest.mark.skipif(
    shutil.which("g++") is None, reason="flex attention on CPU needs a C++ compiler"
)
def test_flex_attention_keeps_packed_rows_apart():
    (ids, before), (packed_ids, packed_before, restarting), targets = padded_and_packed()
    model = tiny_model().eval()
    responses = ResponseModel(model, temperature=0.8)
    with torch.no_grad():
        expected, _ = responses(ids, before, targets)
        set_attention(model, "flex_attention")
        got, _ = responses(packed_ids, packed_before, targets, "none", restarting)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)
