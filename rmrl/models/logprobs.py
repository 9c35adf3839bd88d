"""Log-probabilities and entropies of response tokens, without [B, S, V] in float32.

The decoder runs over whole right-padded rows. The output head runs on response positions alone, a
slice at a time. In training, where the logits of a micro-batch are many, each slice is computed
again in the backward pass: peak memory has a bound, whatever the batch.

Shapes: B rows    S longest row    N response tokens of all rows, flat    H hidden    V vocabulary
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from rmrl.errors import ConfigError
from rmrl.models.linear_head import (
    LinearHead,
    Slicing,
    changed_logits,
    head_logprobs,
    kept_elements,
    plain_linear,
    slice_elements,
)
from rmrl.models.packing import Layout, hidden_states
from rmrl.models.softmax import WHOLE, OfLogits, Softmax

EntropyMode = Literal["none", "detached", "grad", "energy"]
"""Whether token entropies are computed, and whether a gradient flows through them. energy: the
targets' energies (rmrl.models.softmax) in their place, where no gradient is computed at all."""


def logprobs_from_logits(
    logits_NV: Tensor,
    targets_N: Tensor,
    *,
    temperature: float,
    entropy: EntropyMode = "none",
    softmax: Softmax = WHOLE,
) -> tuple[Tensor, Tensor | None]:
    """log p(target) and entropy (nats; None for entropy "none"; energies for "energy") of
    softmax(logits / temperature), float32 of shape [N]."""
    if entropy == "energy":
        assert not torch.is_grad_enabled(), "energies have no gradient"
        scaled_NV = logits_NV.to(torch.float32, copy=True).div_(temperature)
        logprobs_N, totals = softmax.forward(scaled_NV, targets_N, entropy=False)
        return logprobs_N, softmax.energies(scaled_NV, totals)
    logprobs_N, entropy_N = OfLogits.apply(
        logits_NV, targets_N, temperature, entropy != "none", softmax
    )
    if entropy == "detached":
        entropy_N = entropy_N.detach()
    return logprobs_N, entropy_N


def token_logprobs(
    hidden_NH: Tensor,
    targets_N: Tensor,
    *,
    head: LinearHead | Callable[[Tensor], Tensor],
    temperature: float,
    entropy: EntropyMode = "none",
    slice_rows: int,
    kept_rows: int = 0,
    softmax: Softmax = WHOLE,
) -> tuple[Tensor, Tensor | None]:
    """Log-probability (and entropy) of `targets_N`, `slice_rows` positions at a time.

    If there are at most `kept_rows` positions, their logits are kept for the backward pass;
    otherwise each slice is computed again there. `head` maps hidden states [n, H] to logits, which
    `softmax` reads: [n, V], or a share of the vocabulary if both use the same share. The gradients
    of a LinearHead are computed without autograd's graph (see rmrl.models.linear_head), those of
    any other head through it. Returns float32 tensors of shape [N]. The second is None for entropy
    "none" and holds energies for "energy".
    """
    recompute = len(targets_N) > kept_rows
    if torch.is_grad_enabled() and isinstance(head, LinearHead):
        assert entropy != "energy", "energies have no gradient"
        slicing = Slicing(
            rows=slice_rows,
            keep=not recompute,
            temperature=temperature,
            entropy=entropy != "none",
            softmax=softmax,
        )
        logprobs_N, entropy_N = head_logprobs(hidden_NH, targets_N, head, slicing=slicing)
        if entropy == "detached":
            assert entropy_N is not None
            entropy_N = entropy_N.detach()
        return logprobs_N, entropy_N

    def one_slice(hidden_nH: Tensor, targets_n: Tensor) -> tuple[Tensor, Tensor | None]:
        return logprobs_from_logits(
            head(hidden_nH), targets_n, temperature=temperature, entropy=entropy, softmax=softmax
        )

    logprobs: list[Tensor] = []
    entropies: list[Tensor] = []
    for hidden_nH, targets_n in zip(
        hidden_NH.split(slice_rows), targets_N.split(slice_rows), strict=True
    ):
        if torch.is_grad_enabled() and recompute:
            logprobs_n, entropy_n = checkpoint(
                one_slice, hidden_nH, targets_n, use_reentrant=False, preserve_rng_state=False
            )
        else:
            logprobs_n, entropy_n = one_slice(hidden_nH, targets_n)
        logprobs.append(logprobs_n)
        if entropy_n is not None:
            entropies.append(entropy_n)
    return torch.cat(logprobs), torch.cat(entropies) if entropies else None


class ResponseModel(nn.Module):
    """A causal language model that returns response log-probabilities instead of logits.

    Everything happens in one forward call, so that under FSDP the root's parameters (embedding,
    head) are gathered once.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        temperature: float,
        slice_elements: int | None = None,
        kept_elements: int | None = None,
        offload_activations: bool = False,
        wide_head: bool = False,
    ) -> None:
        """`slice_elements`: logits computed at once. None: as many as fit the device's free
        memory. `kept_elements`: most logits of a micro-batch that are kept for the backward pass.
        None: see rmrl.models.linear_head. `offload_activations`: see rmrl.models.activations.
        `wide_head`: see LinearHead."""
        super().__init__()
        self.offload_activations = offload_activations
        self.wide_head = wide_head
        self.model = model
        self.temperature = temperature
        config = model.config.get_text_config()
        self.vocab = int(config.vocab_size)
        self.slice_elements = slice_elements
        self.kept_elements = kept_elements
        # Some families scale the head's output before the softmax.
        scale = float(getattr(config, "logit_scale", None) or 1.0)
        self.logit_factor = scale / float(getattr(config, "logits_scaling", None) or 1.0)
        self.softcap = getattr(config, "final_logit_softcapping", None)

    def head(self, hidden_nH: Tensor) -> Tensor:
        """Logits [n, V], equal to those of the model's own forward pass."""
        output_head: Any = self.model.get_output_embeddings()
        return changed_logits(
            output_head(hidden_nH), factor=self.logit_factor, softcap=self.softcap
        )

    def _head(self) -> LinearHead | Callable[[Tensor], Tensor]:
        """`head`, as its matrix where it is no more than that.

        Called during the forward pass, when the root's parameters are gathered: the matrix is then
        the tensor through which FSDP receives gradients.
        """
        output_head: Any = self.model.get_output_embeddings()
        if not plain_linear(output_head):
            return self.head
        return LinearHead(
            output_head.weight,
            output_head.bias,
            factor=self.logit_factor,
            softcap=self.softcap,
            wide=self.wide_head,
        )

    @torch.no_grad()
    def check_head(self) -> None:
        """Compare `head` with the model's own forward pass on two tokens, before sharding. Raises
        ConfigError where they differ.

        A family with a factor of its own between decoder and logits would otherwise train on wrong
        probabilities, silently.
        """
        self.eval()
        ids_12 = torch.tensor([[0, 1]], device=self.model.device)
        expected = self.model(input_ids=ids_12, use_cache=False).logits.float()
        hidden_12H = self.model.base_model(input_ids=ids_12, use_cache=False).last_hidden_state
        logits = self.head(hidden_12H).float()
        tolerance = 0.01 * expected.abs().max()
        if logits.shape != expected.shape or (logits - expected).abs().max() > tolerance:
            raise ConfigError(
                f"actor_rollout_ref.model.path: models of type '{self.model.config.model_type}'"
                " change their logits in a way that is not supported, so their probabilities"
                " would be wrong: choose another family, e.g. llama, qwen3, gemma3 or mistral"
            )

    def forward(
        self,
        input_ids_BS: Tensor,
        positions_N: Tensor,
        targets_N: Tensor,
        entropy: EntropyMode = "none",
        layout: Layout | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Log-probabilities [N] (and entropies or energies [N]) of `targets_N`.

        `input_ids_BS` is right-padded, or has a `layout` (see rmrl.models.packing and
        rmrl.models.shared_prompts).
        `positions_N` indexes the flattened [B * S]: the position *before* each target. N must be at
        least 1.
        """
        decoded = hidden_states(self.model, input_ids_BS, layout, offload=self.offload_activations)
        hidden_NH = decoded.index_select(0, positions_N)
        elements = self.slice_elements or slice_elements(hidden_NH.device)
        kept = kept_elements(elements) if self.kept_elements is None else self.kept_elements
        return token_logprobs(
            hidden_NH,
            targets_N,
            head=self._head(),
            temperature=self.temperature,
            entropy=entropy,
            slice_rows=max(1, elements // self.vocab),
            kept_rows=kept // self.vocab,
        )
