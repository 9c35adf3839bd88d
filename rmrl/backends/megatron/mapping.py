"""The weight table: the Hugging Face tensors in each megatron-core parameter, their layout in it,
and how tensor parallelism cuts it.

A megatron-core parameter fuses up to three tensors from the checkpoint. `split` returns views into
the fused tensor for them, and is the only place that depends on the layout: loading copies into the
views, gathering reads from them. It works on a whole tensor and on one rank's share alike, because
every share is laid out as the whole.

Kinds
    vocab vocabulary rows, padded with zero rows until the ranks divide them; cut by rows
    qkv       per key-value head: its query heads, then its key, then its value (weight or bias);
              cut by key-value heads
    gate_up   the gate's rows, then the up projection's; each half is cut by rows, so a share is a
              gate and an up projection too
    row       cut by columns (megatron-core's "row-parallel": the input dimension)
    whole     the same on all ranks

Names are global: layers and experts are counted over the whole model, on every stage and rank.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from rmrl.backends.megatron.shape import Shape

Kind = Literal["vocab", "qkv", "gate_up", "row", "whole"]

EMBEDDING = "embedding.word_embeddings.weight"
OUTPUT = "output_layer.weight"
HEAD = "score.weight"
"""Name of a critic's head in transformers' sequence classifiers."""

FUSED_NORMS = {
    "self_attention.linear_qkv.layer_norm_weight": "input_layernorm.weight",
    "mlp.linear_fc1.layer_norm_weight": "pre_mlp_layernorm.weight",
}
"""Norms inside of TransformerEngine's matrices -> their names in megatron-core's own layers."""

_LAYER = re.compile(r"^decoder\.layers\.(\d+)\.")
_EXPERT = re.compile(r"(?<=\.local_experts\.)\d+(?=\.)")
_GROUPED = re.compile(r"(?<=\.experts\.)(linear_fc[12]\.weight)(\d+)$")
"""An expert's matrix in TransformerEngine's grouped layers."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One megatron-core parameter."""

    name: str
    """Its global name, e.g. decoder.layers.7.mlp.linear_fc2.weight."""
    kind: Kind
    hf: tuple[str, ...]
    """Names of the checkpoint's tensors in it, in their order."""
    shapes: tuple[tuple[int, ...], ...]
    """Their shapes."""
    head_dim: int = 1
    """qkv: one head's rows."""
    padded: int = 0
    """vocab: rows with padding."""
    expert: int | None = None
    """The number of the expert that it belongs to."""
    tied: bool = False
    """A second copy of an earlier entry's tensor: loaded, and never published."""

    @property
    def stacked(self) -> bool:
        """True if all ranks' shares, one below the other, are the whole parameter."""
        return self.kind in ("vocab", "qkv")


def entries(shape: Shape, role: str) -> Iterator[Entry]:
    """All parameters in the model as they are published; for role "critic" the head is one
    number."""
    yield _of_vocab(EMBEDDING, "model.embed_tokens.weight", shape)
    for layer in range(shape.layers):
        yield from _attention(shape, layer)
        yield from _mlp(shape, layer)
    yield Entry(
        "decoder.final_layernorm.weight", "whole", ("model.norm.weight",), ((shape.hidden,),)
    )
    if role == "critic":
        yield Entry(OUTPUT, "whole", (HEAD,), ((1, shape.hidden),))
    elif shape.tied:  # a parameter only where the last stage is not also the first
        yield replace(_of_vocab(OUTPUT, "model.embed_tokens.weight", shape), tied=True)
    else:
        yield _of_vocab(OUTPUT, "lm_head.weight", shape)


def _of_vocab(name: str, hf_name: str, shape: Shape) -> Entry:
    size = (shape.vocab, shape.hidden)
    return Entry(name, "vocab", (hf_name,), (size,), padded=shape.padded_vocab)


def _attention(shape: Shape, layer: int) -> Iterator[Entry]:
    prefix = f"decoder.layers.{layer}."
    hf_prefix = f"model.layers.{layer}."
    hidden = (shape.hidden,)
    norm = (f"{hf_prefix}input_layernorm.weight",)
    yield Entry(f"{prefix}input_layernorm.weight", "whole", norm, (hidden,))
    query_rows = shape.heads * shape.head_dim
    key_rows = shape.kv_heads * shape.head_dim
    tails = {"weight": hidden, "bias": ()} if shape.qkv_bias else {"weight": hidden}
    for part, tail in tails.items():
        yield Entry(
            f"{prefix}self_attention.linear_qkv.{part}",
            "qkv",
            tuple(f"{hf_prefix}self_attn.{x}_proj.{part}" for x in "qkv"),
            ((query_rows, *tail), (key_rows, *tail), (key_rows, *tail)),
            head_dim=shape.head_dim,
        )
    if shape.qk_norm:
        for x in "qk":
            name = f"{prefix}self_attention.{x}_layernorm.weight"
            hf_name = f"{hf_prefix}self_attn.{x}_norm.weight"
            yield Entry(name, "whole", (hf_name,), ((shape.head_dim,),))
    output = (f"{hf_prefix}self_attn.o_proj.weight",)
    output_size = (shape.hidden, query_rows)
    yield Entry(f"{prefix}self_attention.linear_proj.weight", "row", output, (output_size,))
    norm = (f"{hf_prefix}post_attention_layernorm.weight",)
    yield Entry(f"{prefix}pre_mlp_layernorm.weight", "whole", norm, (hidden,))


def _mlp(shape: Shape, layer: int) -> Iterator[Entry]:
    prefix = f"decoder.layers.{layer}.mlp."
    hf_prefix = f"model.layers.{layer}.mlp."
    experts = shape.experts
    if experts is None:
        yield from _gated(prefix, hf_prefix, (shape.ffn, shape.hidden))
        return
    router = (f"{hf_prefix}gate.weight",)
    yield Entry(f"{prefix}router.weight", "whole", router, ((experts.count, shape.hidden),))
    for expert in range(experts.count):
        yield from _gated(
            f"{prefix}experts.local_experts.{expert}.",
            f"{hf_prefix}experts.{expert}.",
            (experts.ffn, shape.hidden),
            expert=expert,
        )


def _gated(
    prefix: str, hf_prefix: str, shape: tuple[int, int], *, expert: int | None = None
) -> Iterator[Entry]:
    """A gated feed-forward layer's entries; `shape`: its gate's."""
    gate_up = (f"{hf_prefix}gate_proj.weight", f"{hf_prefix}up_proj.weight")
    yield Entry(f"{prefix}linear_fc1.weight", "gate_up", gate_up, (shape, shape), expert=expert)
    down = (f"{hf_prefix}down_proj.weight",)
    yield Entry(f"{prefix}linear_fc2.weight", "row", down, (shape[::-1],), expert=expert)


def named(chunks: Iterable[Any], first_expert: int) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield the parameters in this process's stages with their global names; `first_expert`: its
    first expert's number."""
    for chunk in chunks:
        # layer_number counts from 1, over all stages
        layers = [layer.layer_number - 1 for layer in chunk.decoder.layers]

        def layer_prefix(match: re.Match[str], layers: Sequence[int] = layers) -> str:
            return f"decoder.layers.{layers[int(match[1])]}."

        for local_name, parameter in chunk.named_parameters():
            name = _LAYER.sub(layer_prefix, local_name)
            layer = _LAYER.match(name)
            if layer is not None and name[layer.end() :] in FUSED_NORMS:
                name = layer[0] + FUSED_NORMS[name[layer.end() :]]
            name = _GROUPED.sub(r"local_experts.\2.\1", name)
            name = _EXPERT.sub(lambda match: str(int(match[0]) + first_expert), name)
            yield name, parameter


def share_shape(entry: Entry, ranks: int) -> tuple[int, ...]:
    """The parameter's shape on one among `ranks` tensor-parallel ranks."""
    tail = entry.shapes[0][1:]
    if entry.kind == "vocab":
        return (entry.padded // ranks, *tail)
    rows = sum(shape[0] for shape in entry.shapes)
    if entry.kind == "row":
        return (rows, tail[0] // ranks)
    if entry.kind == "whole":
        return (rows, *tail)
    return (rows // ranks, *tail)


def slice_of(entry: Entry, number: int, rank: int, ranks: int) -> tuple[slice, ...]:
    """Tensor-parallel rank `rank`'s part in `entry.hf[number]`. Padding rows are in none of the
    checkpoint's tensors."""
    shape = entry.shapes[number]
    slices = [slice(0, size) for size in shape]
    if entry.kind != "whole":
        axis = _axis(entry)
        share = (entry.padded or shape[axis]) // ranks
        start = min(rank * share, shape[axis])
        end = min((rank + 1) * share, shape[axis])
        slices[axis] = slice(start, end)
    return tuple(slices)


def split(entry: Entry, tensor: Tensor) -> tuple[Tensor, ...]:
    """Views into megatron's tensor, or into a share: one for each in `entry.hf`, elements in the
    same order.

    qkv views have two dimensions more, [key-value heads, query heads of each (or 1), head_dim,
    ...]; a vocab view has the padding rows last.
    """
    if entry.kind == "qkv":
        queries = entry.shapes[0][0] // entry.shapes[1][0]
        return tensor.unflatten(0, (-1, queries + 2, entry.head_dim)).split([queries, 1, 1], dim=1)
    return tensor.chunk(len(entry.hf))


def fill(entry: Entry, tensors: Sequence[Tensor], parameter: Tensor) -> None:
    """Copy the checkpoint's tensors, or a rank's slices of them, to their places in `parameter`,
    casting on the way; padding becomes 0."""
    for view, tensor in zip(split(entry, parameter), tensors, strict=True):
        rows = tensor.reshape(-1, *view.shape[1:])
        assert len(rows) == len(view) or entry.kind == "vocab", (
            f"{entry.name}: {tuple(tensor.shape)} does not fill {tuple(view.shape)}"
        )
        view[: len(rows)].copy_(rows)
        view[len(rows) :].zero_()


def joined(entry: Entry, shares: Sequence[Tensor]) -> Iterator[Tensor]:
    """The way back from cutting and `fill`: the tensors `entry.hf`, one by one, from all ranks'
    shares or from one whole tensor."""
    for number, shape in enumerate(entry.shapes):
        views = [split(entry, share)[number] for share in shares]
        pieces = [view.flatten(0, view.dim() - len(shape)) for view in views]
        whole = pieces[0]
        if len(pieces) > 1 and entry.kind != "whole":
            whole = torch.cat(pieces, dim=_axis(entry))
        yield whole[: shape[0]].contiguous()


def _axis(entry: Entry) -> int:
    """The dimension in the checkpoint's tensors that is cut."""
    return 1 if entry.kind == "row" else 0
