"""Packed rows compute what padded rows compute, and a family that mixes them is refused."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import (
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    Gemma4ForCausalLM,
    Gemma4TextConfig,
    GptOssConfig,
    GptOssForCausalLM,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from rmrl.backends.base import TrainSettings
from rmrl.backends.fsdp.build import layout_of_rows
from rmrl.config.schema import ActorConfig, ModelConfig
from rmrl.errors import ConfigError
from rmrl.models import varlen
from rmrl.models.logprobs import ResponseModel
from rmrl.models.packing import (
    PackedRows,
    attention,
    keeps_rows_apart,
    packs,
    packs_fast,
    set_attention,
    slow_packing,
)
from rmrl.models.shared_prompts import keeps_responses_apart
from tests.engine_models import llama_config
from tests.packages import hide

ROWS = (9, 5, 2)


def tiny_model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(llama_config())


def padded_and_packed() -> tuple[tuple[torch.Tensor, ...], tuple[Any, ...], torch.Tensor]:
    """(ids, positions) and (ids, positions, place of the rows) for all tokens but the first of each
    row; and these tokens."""
    torch.manual_seed(1)
    rows = [torch.randint(3, 1000, (n,)) for n in ROWS]
    padded = torch.zeros(len(rows), max(ROWS), dtype=torch.long)
    for number, row in enumerate(rows):
        padded[number, : len(row)] = row
    before = torch.cat([number * max(ROWS) + torch.arange(n - 1) for number, n in enumerate(ROWS)])
    starts = torch.tensor([0, *ROWS]).cumsum(0)
    packed_before = torch.cat(
        [start + torch.arange(n - 1) for start, n in zip(starts, ROWS, strict=False)]
    )
    rows_of_pack = PackedRows.of(ROWS, torch.from_numpy)
    return (
        (padded, before),
        (torch.cat(rows)[None], packed_before, rows_of_pack),
        torch.cat([row[1:] for row in rows]),
    )


@pytest.mark.parametrize("name", ["sdpa", "varlen"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_packed_rows_equal_padded_rows_and_so_do_their_gradients(name: str, checkpointing: bool):
    (ids, before), (packed_ids, packed_before, restarting), targets = padded_and_packed()
    results = []
    for arguments in (
        (ids, before, targets, "grad"),
        (packed_ids, packed_before, targets, "grad", restarting),
    ):
        model = ResponseModel(tiny_model(), temperature=0.8)
        if len(arguments) == 5:
            set_attention(model.model, name)
        if checkpointing:
            model.train()
            model.model.gradient_checkpointing_enable({"use_reentrant": False})
        logprobs, entropy = model(*arguments)
        (logprobs * torch.arange(len(targets)) + 0.1 * entropy).sum().backward()
        results.append((logprobs.detach(), {name: p.grad for name, p in model.named_parameters()}))
    (logprobs, gradients), (packed_logprobs, packed_gradients) = results
    torch.testing.assert_close(packed_logprobs, logprobs, atol=1e-5, rtol=0)
    for name, gradient in gradients.items():
        largest = gradient.abs().max().item()
        torch.testing.assert_close(
            packed_gradients[name], gradient, atol=1e-5 * largest, rtol=0, msg=name
        )


def test_packing_is_for_cuda_or_an_attention_named():
    wanted = ModelConfig(use_remove_padding=True)
    assert packs(wanted, device="cuda")
    assert not packs(wanted, device="cpu")
    assert packs(ModelConfig(use_remove_padding=True, attn_implementation="sdpa"), device="cpu")
    assert not packs(ModelConfig(attn_implementation="sdpa"), device="cuda")


@pytest.mark.parametrize("installed", [True, False])
def test_auto_takes_the_fastest_attention_there_is(
    installed: bool, monkeypatch: pytest.MonkeyPatch
):
    spec = importlib.util.find_spec("torch") if installed else None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    monkeypatch.setattr(varlen, "_kernel", lambda: None)
    wanted = ModelConfig(use_remove_padding=True)
    assert attention(wanted, device="cpu", dtype=torch.bfloat16) == "sdpa"
    assert attention(ModelConfig(), device="cuda", dtype=torch.bfloat16) == "sdpa"
    assert attention(wanted, device="cuda", dtype=torch.bfloat16) == (
        "flash_attention_2" if installed else "flex_attention"
    )
    assert attention(wanted, device="cuda", dtype=torch.float32) == "flex_attention"


def test_auto_takes_the_kernel_of_torch_where_flash_attention_is_missing(
    monkeypatch: pytest.MonkeyPatch,
):
    hide(monkeypatch, "flash_attn")
    monkeypatch.setattr(varlen, "_kernel", lambda: torch.add)
    packing = ModelConfig(use_remove_padding=True)
    model = tiny_model()

    def chosen(dtype: torch.dtype) -> str:
        return attention(packing, device="cuda", dtype=dtype, language_model=model)

    assert chosen(torch.bfloat16) == "varlen"
    assert chosen(torch.float32) == "flex_attention"
    model.config.attn_logit_softcapping = 50.0
    assert chosen(torch.bfloat16) == "flex_attention"
    model.config.attn_logit_softcapping = None
    model.config.head_dim = 12
    assert chosen(torch.bfloat16) == "flex_attention"


SIZES: dict[str, Any] = {
    "vocab_size": 32, "hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1,
}  # fmt: skip


def gpt_oss() -> PreTrainedModel:
    sizes = SIZES | {"head_dim": 64, "num_local_experts": 2, "num_experts_per_tok": 1}
    return GptOssForCausalLM(GptOssConfig(**sizes))


def deepseek_v3(value_head: int) -> PreTrainedModel:
    """Queries and keys of 16 + 8 channels."""
    config = DeepseekV3Config(
        **SIZES | {"num_key_value_heads": 2},
        q_lora_rank=8,
        kv_lora_rank=8,
        qk_nope_head_dim=16,
        qk_rope_head_dim=8,
        v_head_dim=value_head,
        first_k_dense_replace=2,  # no experts
    )
    assert config.head_dim == 8  # the rotated part alone
    return DeepseekV3ForCausalLM(config)


def gemma4(global_head: int) -> PreTrainedModel:
    """Heads of 32 channels in the first layer, which sees a window, and others in the second."""
    config = Gemma4TextConfig(
        **SIZES,
        head_dim=32,
        global_head_dim=global_head,
        hidden_size_per_layer_input=0,
        layer_types=["sliding_attention", "full_attention"],
    )
    return Gemma4ForCausalLM(config)


def with_a_chunked_layer() -> PreTrainedModel:
    model = tiny_model()
    model.config.layer_types = ["full_attention", "chunked_attention"]
    return model


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (gpt_oss, "has no attention sinks"),
        (lambda: deepseek_v3(16), "this model's heads have 24 and 16"),
        (lambda: gemma4(512), "this model's have 512"),
        (with_a_chunked_layer, "this model has layers of chunked_attention"),
        (lambda: deepseek_v3(24), ""),
        (lambda: gemma4(32), ""),
    ],
)
def test_auto_leaves_out_the_kernel_of_torch_where_it_cannot_compute_the_model(
    make: Callable[[], PreTrainedModel], reason: str, monkeypatch: pytest.MonkeyPatch
):
    hide(monkeypatch, "flash_attn")
    model = make()

    def chosen(name: str) -> str:
        settings = ModelConfig(use_remove_padding=True, attn_implementation=name)
        return attention(settings, device="cuda", dtype=torch.bfloat16, language_model=model)

    assert chosen("auto") == ("flex_attention" if reason else "varlen")
    if reason:
        with pytest.raises(ConfigError, match=f"attn_implementation=varlen .*{reason}"):
            chosen("varlen")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_model_with_heads_of_two_sizes_starts(device: str):
    """transformers raises an error where head_dim is read from the config of the whole model."""
    model = gemma4(512)
    name = attention(ModelConfig(), device=device, dtype=torch.bfloat16, language_model=model)
    assert name == "sdpa"
    assert not keeps_responses_apart(model)


def test_the_installed_torch_has_the_kernel_with_the_arguments_that_are_passed():
    assert varlen.kernel_problem(torch.bfloat16) == ""


def test_the_slow_attention_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch):
    packing = ModelConfig(use_remove_padding=True)
    hide(monkeypatch, "flash_attn")
    half = torch.bfloat16
    assert slow_packing(packing, device="cuda", dtype=half) == ""  # torch has its own kernel
    sentence = slow_packing(packing, device="cuda", dtype=torch.float32)
    assert "computes with flex attention" in sentence
    assert "set fsdp_config.param_dtype=bfloat16" in sentence
    monkeypatch.setattr(varlen, "_kernel", lambda: None)
    sentence = slow_packing(packing, device="cuda", dtype=half)
    assert "pip install flash-attn" in sentence
    assert "lacks it: upgrade" in sentence
    assert slow_packing(packing, device="cpu", dtype=half) == ""
    assert slow_packing(ModelConfig(), device="cuda", dtype=half) == ""
    named = ModelConfig(use_remove_padding=True, attn_implementation="flex_attention")
    monkeypatch.undo()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: importlib.machinery)
    assert "set model.attn_implementation=auto" in slow_packing(named, device="cuda", dtype=half)


def by_hand(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: int | None) -> torch.Tensor:
    """Attention of one row [S, n, d] whose keys are shared by pairs of heads."""
    k, v = k.repeat_interleave(2, dim=1), v.repeat_interleave(2, dim=1)
    scores = torch.einsum("snd,tnd->nst", q, k) / q.shape[-1] ** 0.5
    distance = torch.arange(len(q))[:, None] - torch.arange(len(q))
    hidden = (distance < 0) | (distance >= (window or len(q)))
    return torch.einsum("nst,tnd->snd", scores.masked_fill(hidden, -1e9).softmax(-1), v)


def of_torch_2_11(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seq_q: torch.Tensor,
    cu_seq_k: torch.Tensor | None,
    max_q: int,
    max_k: int,
    *,
    return_aux: object = None,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
) -> torch.Tensor:
    """Compute what the kernel of that signature does, row by row; heads must be as many."""
    assert (return_aux, scale, max_q) == (None, None, max_k)
    assert query.shape == key.shape == value.shape
    assert cu_seq_k is cu_seq_q
    before, after = window_size
    assert after == 0
    rows = [part.split(cu_seq_q.diff().tolist()) for part in (query, key, value)]
    # by_hand shares keys by pairs of heads: every second one of equal pairs
    parts = [(q, k[:, ::2], v[:, ::2]) for q, k, v in zip(*rows, strict=True)]
    return torch.cat([by_hand(*part, None if before < 0 else before + 1) for part in parts])


def of_torch_2_13(*args: Any, enable_gqa: bool = False, **options: Any) -> torch.Tensor:
    """Compute what the kernel does that takes fewer heads of keys where it is told so."""
    q, k, v, *others = args
    assert enable_gqa == (q.shape[1] != k.shape[1])
    k, v = k.repeat_interleave(2, dim=1), v.repeat_interleave(2, dim=1)
    return of_torch_2_11(q, k, v, *others, **options)


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("kernel", [of_torch_2_11, of_torch_2_13])
def test_the_kernels_of_torch_2_11_and_2_13_get_keys_for_all_heads(
    monkeypatch: pytest.MonkeyPatch, kernel: Callable[..., torch.Tensor], window: int | None
):
    """torch 2.11 has no enable_gqa: keys and values are repeated for it, and packing does not go
    through flex attention."""
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(sum(ROWS), 4, 8, generator=generator)
    k, v = torch.randn(2, sum(ROWS), 2, 8, generator=generator)
    boundaries = torch.tensor([0, *ROWS]).cumsum(0).int()
    rows = {"boundaries": boundaries, "longest": max(ROWS), "window": window}
    expected = varlen.attend(q, k, v, **rows)
    monkeypatch.setattr(varlen, "_kernel", lambda: kernel)
    monkeypatch.setattr(varlen, "has_kernel", lambda _: True)
    torch.testing.assert_close(varlen.attend(q, k, v, **rows), expected)


@pytest.mark.parametrize("kernel", [of_torch_2_11, None])
def test_a_torch_whose_kernel_lacks_what_is_passed_is_named(
    monkeypatch: pytest.MonkeyPatch, kernel: Callable[..., torch.Tensor] | None
):
    """The kernel of torch 2.11 is taken; one without scale is not."""
    attention_kernel = kernel or (lambda query, key, value: query)
    module = types.SimpleNamespace(varlen_attn=attention_kernel)
    monkeypatch.setattr(importlib, "import_module", lambda _: module)
    varlen._kernel.cache_clear()
    try:
        assert (varlen.kernel_problem(torch.bfloat16) == "") == (kernel is not None)
    finally:
        varlen._kernel.cache_clear()


@pytest.mark.parametrize("window", [None, 3])
def test_rows_of_different_length_through_sdpa(window: int | None):
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(sum(ROWS), 4, 8, generator=generator)
    k, v = torch.randn(2, sum(ROWS), 2, 8, generator=generator)
    boundaries = torch.tensor([0, *ROWS]).cumsum(0).int()
    output = varlen.attend(q, k, v, boundaries=boundaries, longest=max(ROWS), window=window)
    parts = zip(q.split(ROWS), k.split(ROWS), v.split(ROWS), strict=True)
    expected = torch.cat([by_hand(*part, window) for part in parts])
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=0)


def test_layers_with_a_sliding_window_keep_it_in_padded_and_packed_rows():
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=1000,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        use_sliding_window=True,
        sliding_window=3,
        max_window_layers=1,
    )
    model = Qwen2ForCausalLM(config).eval()
    (ids, before), packed, targets = padded_and_packed()
    responses = ResponseModel(model, temperature=1.0)
    with torch.no_grad():
        expected, _ = responses(ids, before, targets)
        set_attention(model, "varlen")
        padded_rows, _ = responses(ids, before, targets)
        packed_ids, packed_before, rows = packed
        packed_rows, _ = responses(packed_ids, packed_before, targets, "none", rows)
    torch.testing.assert_close(padded_rows, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(packed_rows, expected, atol=1e-5, rtol=0)


def test_boundaries_reach_every_layer_as_they_are(monkeypatch: pytest.MonkeyPatch):
    """Computed once per micro-batch; no layer finds them anew."""
    calls: list[tuple[torch.Tensor, Any]] = []

    def attend(q: torch.Tensor, *_: torch.Tensor, **options: Any) -> torch.Tensor:
        calls.append((options["boundaries"], options["longest"]))
        return q

    monkeypatch.setattr(varlen, "attend", attend)
    _, (packed_ids, packed_before, rows), targets = padded_and_packed()
    model = tiny_model().eval()
    set_attention(model, "varlen")
    ResponseModel(model, temperature=1.0)(packed_ids, packed_before, targets, "none", rows)
    assert len(calls) == model.config.num_hidden_layers
    for boundaries, longest in calls:
        assert boundaries is rows.boundaries
        assert longest == 9
        assert type(longest) is int


def test_attention_that_varlen_lacks_is_refused():
    varlen.register()
    model = tiny_model()
    attention_of_layer = model.model.layers[0].self_attn
    states = torch.zeros(1, 2, 3, 8)
    for refused in ({"softcap": 30.0}, {"s_aux": torch.zeros(2)}, {"dropout": 0.1}):
        with pytest.raises(ConfigError, match="attn_implementation=varlen: this model computes"):
            ALL_ATTENTION_FUNCTIONS["varlen"](
                attention_of_layer, states, states, states, None, **refused
            )


@pytest.mark.parametrize(
    ("name", "device", "dtype", "named"),
    [
        ("flash_attention_2", "cpu", torch.bfloat16, r"trainer\.device=cuda"),
        ("flash_attention_2", "cuda", torch.float32, r"torch\.float32.*param_dtype=bfloat16"),
        ("flash_attention_2", "cuda", torch.bfloat16, "pip install flash-attn"),
        ("flex_atention", "cpu", torch.float32, "did you mean 'flex_attention'"),
    ],
)
def test_an_attention_that_cannot_run_says_what_to_type(
    name: str, device: str, dtype: torch.dtype, named: str, monkeypatch: pytest.MonkeyPatch
):
    hide(monkeypatch, "flash_attn")
    with pytest.raises(ConfigError, match=named):
        attention(ModelConfig(attn_implementation=name), device=device, dtype=dtype)


def test_attention_is_set_in_place():
    model = tiny_model()
    set_attention(model, "eager")
    assert model.model.layers[0].self_attn.config._attn_implementation == "eager"


def test_a_family_that_keeps_rows_apart_passes():
    assert keeps_rows_apart(tiny_model())
    assert keeps_rows_apart(tiny_model().bfloat16())


def test_a_family_that_keeps_boundaries_from_its_layers_is_found():
    model = tiny_model()
    set_attention(model, "varlen")
    assert keeps_rows_apart(model)
    layer_forward = model.model.layers[0].forward

    def without_boundaries(*arguments: Any, **keywords: Any) -> Any:
        keywords.pop("cu_seq_lens_q", None)
        return layer_forward(*arguments, **keywords)

    model.model.layers[0].forward = without_boundaries
    assert not keeps_rows_apart(model)


class LooksBack(torch.nn.Module):
    """A convolution or a recurrence looks back whatever the positions say."""

    def forward(self, hidden_BSH: torch.Tensor) -> torch.Tensor:
        return hidden_BSH.cumsum(dim=1)


def layout(model: LlamaForCausalLM, **entries: Any) -> tuple[bool, bool]:
    settings = TrainSettings(
        model=ModelConfig(**entries), actor=ActorConfig(), temperature=1.0, total_steps=1,
        max_response_length=8, device="cuda",
    )  # fmt: skip
    return layout_of_rows(settings, ResponseModel(model, temperature=1.0), torch.bfloat16)


def test_a_family_that_mixes_rows_is_refused_where_packing_is_asked_for():
    model = tiny_model()
    assert layout(model, use_remove_padding=True) == (True, False)
    model.model.layers[0].mlp = LooksBack()
    with pytest.raises(ConfigError, match=r"'llama'.*use_remove_padding=false"):
        layout(model, use_remove_padding=True)


def test_null_packs_where_a_kernel_takes_the_model_and_the_rows_stay_apart(
    monkeypatch: pytest.MonkeyPatch,
):
    hide(monkeypatch, "flash_attn")
    monkeypatch.setattr(varlen, "_kernel", lambda: torch.add)
    assert layout(tiny_model()) == (True, False)
    assert layout(tiny_model(), attn_implementation="varlen") == (True, False)
    for entries in (
        {"use_remove_padding": False},
        {"share_prompts": True},
        {"attn_implementation": "sdpa"},
        {"attn_implementation": "flex_attention"},
    ):
        assert layout(tiny_model(), **entries)[0] is False
    mixing = tiny_model()
    mixing.model.layers[0].mlp = LooksBack()
    assert layout(mixing) == (False, False)
    monkeypatch.setattr(varlen, "_kernel", lambda: None)
    assert layout(tiny_model()) == (False, False)
    assert layout(tiny_model(), share_prompts=True) == (False, True)


def test_null_does_not_pack_on_cpu_nor_in_full_precision():
    for device, dtype in (("cpu", torch.bfloat16), ("cuda", torch.float32)):
        packed = packs_fast(ModelConfig(), device=device, dtype=dtype, language_model=tiny_model())
        assert not packed
