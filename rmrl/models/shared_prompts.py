"""Responses to one prompt in one sequence, so that the prompt is computed once.

    rows      p q | a b          one sequence     p q | a b | c d e
              p q | c d e        positions        0 1 | 2 3 | 2 3 4

A token attends to the prompt and to its own response, so every response has the numbers that it has
alone. GRPO samples n responses to a prompt: its tokens are computed, and go through the backward
pass, once instead of n times ("Prefix Grouper", https://arxiv.org/abs/2506.05433).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from rmrl.config.schema import ModelConfig
from rmrl.models.layer_configs import layer_configs
from rmrl.models.packing import hidden_states, kept_apart


@dataclass(frozen=True, slots=True)
class SharedPrompts:
    """Place of responses behind their prompts, one sequence for each prompt."""

    position_ids_BS: Tensor
    mask_B1SS: Tensor

    @classmethod
    def of(cls, segments_BS: Tensor, position_ids_BS: Tensor) -> SharedPrompts:
        """`segments_BS`: 0 for the prompt, the number of the response from 1, -1 for padding."""
        return cls(position_ids_BS, attention_mask(segments_BS))

    def arguments(self, language_model: PreTrainedModel) -> dict[str, Any]:
        """Return positions and mask."""
        del language_model
        return {"position_ids": self.position_ids_BS, "attention_mask": self.mask_B1SS}


def shares(model: ModelConfig, *, device: str) -> bool:
    """Return whether the settings let responses share their prompt: on CPU unless
    `share_prompts=false`, elsewhere with `share_prompts=true`. Only under SDPA, which takes any
    mask."""
    if model.share_prompts is None:
        wanted = device == "cpu"
    else:
        wanted = model.share_prompts
    return wanted and not model.use_remove_padding and model.attn_implementation in ("auto", "sdpa")


def attention_mask(segments_BS: Tensor) -> Tensor:
    """Return which key (last dimension) each query attends to, bool [B, 1, S, S]: earlier tokens of
    the prompt (segment 0) and of its own segment."""
    queries_BS1 = segments_BS[:, :, None]
    keys_B1S = segments_BS[:, None, :]
    visible_BSS = (keys_B1S == 0) | (keys_B1S == queries_BS1)
    return visible_BSS.tril()[:, None]


@torch.no_grad()
def keeps_responses_apart(language_model: PreTrainedModel) -> bool:
    """Return whether two responses in one sequence have the hidden states that they have alone.
    Compares them on a few tokens, before sharding.

    Families whose layers see a window, or carry a state along the sequence, do not.
    """
    if any(map(_limits_view, layer_configs(language_model.config.get_text_config()))):
        return False
    language_model.eval()
    device = language_model.device
    prompt = [2, 5, 3]
    first = [7, 4]
    second = [6, 5, 8]
    ids_1S = torch.tensor([prompt + first + second], device=device)
    segments_1S = torch.tensor([[0, 0, 0, 1, 1, 2, 2, 2]], device=device)
    positions_1S = torch.tensor([[0, 1, 2, 3, 4, 3, 4, 5]], device=device)
    layout = SharedPrompts.of(segments_1S, positions_1S)
    together = hidden_states(language_model, ids_1S, layout).float()[len(prompt) + len(first) :]
    alone_1S = torch.tensor([prompt + second], device=device)
    alone = hidden_states(language_model, alone_1S, None).float()[len(prompt) :]
    joined = hidden_states(language_model, ids_1S, None).float()[len(prompt) + len(first) :]
    return kept_apart(together, alone=alone, joined=joined)


def _limits_view(config: Any) -> bool:
    """Whether layers with this config do not attend to all earlier tokens."""
    window = getattr(config, "sliding_window", None) or getattr(
        config, "attention_chunk_size", None
    )
    if window and getattr(config, "use_sliding_window", True):
        return True
    return set(getattr(config, "layer_types", None) or ["full_attention"]) != {"full_attention"}
