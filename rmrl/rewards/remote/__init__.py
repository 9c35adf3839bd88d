"""Rewards from a remote server: wires, one pooled HTTP client, deadlines, retries, rate limits.

To add a wire: one class with `Wire`'s methods whose constructor takes an `HTTPSpec`, and one line
here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from rmrl.registry import Registry
from rmrl.rewards.remote.spec import HTTPSpec


class Wire(Protocol):
    """Protocol of requests to one kind of server."""

    async def submit(self, method: str, requests: Sequence[Any]) -> list[Any]:
        """Return one result per request, in order. A failed request is the `failure` of its own
        result.

        Raises RewardError for a method the wire does not have. Cancelling it stops everything:
        nothing is sent afterwards.
        """
        ...

    async def aclose(self) -> None:
        """End the connections of the running event loop; waiting requests are marked
        `cancelled`."""
        ...


WIRES: Registry[Callable[[HTTPSpec], Wire]] = Registry(
    "wire",
    {
        "openai": "rmrl.rewards.remote.openai:OpenAIWire",
        "decisions": "rmrl.rewards.remote.decisions:DecisionsWire",
        "systemone": "rmrl.rewards.remote.decisions:SystemOneWire",
        "openrlhf": "rmrl.rewards.remote.openrlhf:OpenRLHFWire",
        "slime": "rmrl.rewards.remote.slime:SlimeWire",
        "nemo_gym": "rmrl.rewards.remote.nemo_gym:NemoGymWire",
        "sandbox_fusion": "rmrl.rewards.kinds.code.sandbox_fusion:SandboxFusionWire",
    },
)
DECISION_WIRES = ("decisions", "systemone")
"""Wires that answer questions with probabilities."""
REWARD_WIRES = ("openrlhf", "slime", "nemo_gym")
"""Wires that answer with numbers."""


def reads_rows(wire: str) -> bool:
    """Whether a wire posts whole rows (`RowRequest`): its class states `reads_rows = True`."""
    return bool(getattr(WIRES[wire], "reads_rows", False))
