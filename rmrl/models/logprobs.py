"""Log-probabilities and entropies of response tokens, without [B, S, V] in float32.

The decoder runs over whole right-padded rows; the output head runs on response positions alone, a
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
from rmrl.models.packing import hidden_states

EntropyMode = Literal["none", "detached", "grad"]
"""Whether token entropies are computed, and whether a gradient flows through them."""

SLICE_ELEMENTS = 2**24
"""Logits computed at once, in elements (64 MiB of float32)."""
KEPT_ELEMENTS = 2**26
"""Logits of a micro-batch up to this many elements (256 MiB of float32) are kept for the backward
pass rather than computed again."""


class _LogprobsAndEntropy(torch.autograd.Function):
    """log p(target) and H(p) for p = softmax(z), z = logits / temperature, with gradients in three
    passes over the logits, in place.

    d log p_t / dz_v = 1[v = t] - p_v          d H / dz_v = -p_v (log p_v + H)
    """

    @staticmethod
    def forward(
        ctx: Any, logits_NV: Tensor, targets_N: Tensor, temperature: float, with_entropy: bool
    ) -> tuple[Tensor, Tensor | None]:
        scaled_NV = logits_NV.to(torch.float32, copy=True).div_(temperature)
        log_z_N = torch.logsumexp(scaled_NV, dim=-1)
        logprobs_N = scaled_NV.gather(-1, targets_N[:, None])[:, 0] - log_z_N
        entropy_N = None
        if with_entropy:
            scaled_NV.sub_(log_z_N[:, None])
            entropy_N = -(scaled_NV.exp().mul_(scaled_NV)).sum(-1)
        ctx.save_for_backward(logits_NV, targets_N, log_z_N, entropy_N)
        ctx.temperature = temperature
        ctx.set_materialize_grads(False)
        return logprobs_N, entropy_N

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, grad_logprobs_N: Tensor | None, grad_entropy_N: Tensor | None
    ) -> tuple[Tensor, None, None, None]:
        logits_NV, targets_N, log_z_N, entropy_N = ctx.saved_tensors
        if grad_logprobs_N is None:
            grad_logprobs_N = torch.zeros_like(log_z_N)
        direct_N1 = grad_logprobs_N[:, None]
        log_p_NV = logits_NV.to(torch.float32, copy=True).div_(ctx.temperature)
        log_p_NV.sub_(log_z_N[:, None])
        if grad_entropy_N is None:
            grad_NV = log_p_NV.exp_().mul_(-direct_N1)
        else:
            p_NV = log_p_NV.exp()
            grad_NV = log_p_NV.add_(entropy_N[:, None]).mul_(grad_entropy_N[:, None])
            grad_NV.add_(direct_N1).neg_().mul_(p_NV)
        grad_NV.scatter_add_(1, targets_N[:, None], direct_N1)
        return grad_NV.div_(ctx.temperature).to(logits_NV.dtype), None, None, None


def logprobs_from_logits(
    logits_NV: Tensor, targets_N: Tensor, *, temperature: float, entropy: EntropyMode = "none"
) -> tuple[Tensor, Tensor | None]:
    """log p(target) and entropy (nats; None for entropy "none") of softmax(logits / temperature),
    float32 of shape [N]."""
    logprobs_N, entropy_N = _LogprobsAndEntropy.apply(
        logits_NV, targets_N, temperature, entropy != "none"
    )
    if entropy == "detached":
        entropy_N = entropy_N.detach()
    return logprobs_N, entropy_N


def token_logprobs(
    hidden_NH: Tensor,
    targets_N: Tensor,
    *,
    head: Callable[[Tensor], Tensor],
    temperature: float,
    entropy: EntropyMode = "none",
    slice_rows: int,
    kept_rows: int = 0,
    from_logits: Callable[..., tuple[Tensor, Tensor | None]] = logprobs_from_logits,
) -> tuple[Tensor, Tensor | None]:
    """Log-probability (and entropy) of `targets_N`, `slice_rows` positions at a time.

    If there are at most `kept_rows` positions, their logits are kept for the backward pass;
    otherwise each slice is computed again there. `head` maps hidden states [n, H] to logits, which
    `from_logits` reads: [n, V], or a share of the vocabulary if both use the same share. Returns
    float32 tensors of shape [N]; the second is None for entropy "none".
    """

    def one_slice(hidden_nH: Tensor, targets_n: Tensor) -> tuple[Tensor, Tensor | None]:
        return from_logits(head(hidden_nH), targets_n, temperature=temperature, entropy=entropy)

    logprobs: list[Tensor] = []
    entropies: list[Tensor] = []
    recompute = torch.is_grad_enabled() and len(targets_N) > kept_rows
    for hidden_nH, targets_n in zip(
        hidden_NH.split(slice_rows), targets_N.split(slice_rows), strict=True
    ):
        if recompute:
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
        slice_elements: int = SLICE_ELEMENTS,
        kept_elements: int = KEPT_ELEMENTS,
    ) -> None:
        super().__init__()
        self.model = model
        self.temperature = temperature
        config = model.config.get_text_config()
        self.slice_rows = max(1, slice_elements // config.vocab_size)
        self.kept_rows = kept_elements // config.vocab_size
        # Some families scale the head's output before the softmax.
        scale = float(getattr(config, "logit_scale", None) or 1.0)
        self.logit_factor = scale / float(getattr(config, "logits_scaling", None) or 1.0)
        self.softcap = getattr(config, "final_logit_softcapping", None)

    def head(self, hidden_nH: Tensor) -> Tensor:
        """Logits [n, V], equal to those of the model's own forward pass."""
        output_head: Any = self.model.get_output_embeddings()
        logits_nV = output_head(hidden_nH)
        if self.logit_factor != 1.0:
            logits_nV = logits_nV * self.logit_factor
        if self.softcap is not None:
            logits_nV = torch.tanh(logits_nV / self.softcap) * self.softcap
        return logits_nV

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
        position_ids_BS: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Log-probabilities [N] (and entropies [N]) of `targets_N`.

        `input_ids_BS` is right-padded, or with `position_ids_BS` packed (see rmrl.models.packing).
        `positions_N` indexes the flattened [B * S]: the position *before* each target. N must be at
        least 1.
        """
        decoded = hidden_states(self.model, input_ids_BS, position_ids_BS)
        hidden_NH = decoded.index_select(0, positions_N)
        return token_logprobs(
            hidden_NH,
            targets_N,
            head=self.head,
            temperature=self.temperature,
            entropy=entropy,
            slice_rows=self.slice_rows,
            kept_rows=self.kept_rows,
        )
