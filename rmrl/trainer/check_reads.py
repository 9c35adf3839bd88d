"""Checks that the texts of the policy hold the marks that rewards which read a part look for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rmrl.rewards.specs.spec import RewardSpec
from rmrl.thinking import marks_among


def reads_problems(specs: Sequence[RewardSpec], tokenizer: Any) -> list[str]:
    """Return one sentence per reward that could not tell the thinking from the rest: special
    tokens are left out of the texts, and in the policy's tokenizer the marks are special."""
    special: list[str] = [
        token.content for token in tokenizer.added_tokens_decoder.values() if token.special
    ]
    problems: list[str] = []
    for spec in specs:
        if not spec.reads.parts_thinking:
            continue
        if spec.reads.tags is None:
            lost = marks_among(special)
        else:
            lost = [tag for tag in spec.reads.tags if tag in special]
        if lost:
            problems.append(
                f"reward '{spec.name}' reads the {spec.reads.part}, and the policy's tokenizer has"
                f" {' and '.join(lost)} as special tokens, which are left out of its texts, so that"
                " nothing tells the thinking from the rest: use a tokenizer"
                " (actor_rollout_ref.model.tokenizer_path) in which they are added tokens with"
                f' "special": false, or reward.specs.{spec.name}.reads=all'
            )
    return problems
