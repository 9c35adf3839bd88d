"""Wire of OpenRLHF's `remote_rm_url`.

    POST {"query": [prompt + response], "prompts": [...], "labels": [...]}
    -> {"rewards": [...], "scores": [...], "extra_logs": {...}}, or a bare list of rewards

A row's `prompt` is the reward's rm_prompt as plain text, where OpenRLHF sends the policy's
templated prompt. With `template` it is that templated prompt. `rewards` count; `scores` and those
`extra_logs` that have one entry per response become further columns. A row without a ground truth
has the label "", as OpenRLHF sends it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from rmrl.data.json_text import reference_value
from rmrl.inference.reward_engine_base import ValueOutput
from rmrl.rewards.remote.client import HTTPClient, RemoteCallError
from rmrl.rewards.remote.spec import HTTPSpec, RewardRequest
from rmrl.rewards.remote.values import check_method, failed, value_output, with_extra
from rmrl.together import together


class OpenRLHFWire:
    """Wire that posts `spec.batch_size` responses at a time. A post that fails, fails for its own
    responses."""

    def __init__(self, spec: HTTPSpec, client: HTTPClient | None = None) -> None:
        self._spec = spec
        self._client = client or HTTPClient(spec)

    async def submit(self, method: str, requests: Sequence[RewardRequest]) -> list[ValueOutput]:
        """See `Wire.submit`. The only method is "reward"."""
        check_method(method, "openrlhf")
        size = self._spec.batch_size
        batches = [requests[i : i + size] for i in range(0, len(requests), size)]
        outputs = await together(map(self._batch, batches))
        return list(chain.from_iterable(outputs))

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _batch(self, requests: Sequence[RewardRequest]) -> list[ValueOutput]:
        body = {
            "query": [r.prompt + r.response for r in requests],
            "prompts": [r.prompt for r in requests],
            "labels": ["" if r.label is None else reference_value(r.label) for r in requests],
        }
        try:
            answer = await self._client.post(with_extra(body, self._spec))
            return self._values(answer, len(requests))
        except RemoteCallError as error:
            return [failed(error.failure, error.detail)] * len(requests)

    def _values(self, answer: Any, count: int) -> list[ValueOutput]:
        url = self._client.shown_url
        rewards = answer.get("rewards") if isinstance(answer, Mapping) else answer
        if not isinstance(rewards, list):
            text = self._client.shown(repr(answer))
            raise RemoteCallError(
                "provider_error", f"{url} answered without a list of 'rewards': {text}."
            )
        if len(rewards) != count:
            raise RemoteCallError(
                "provider_error",
                f"{url} gave {len(rewards)} rewards for {count} responses; one for each is needed.",
            )
        candidates: dict[Any, Any] = {}
        if isinstance(answer, Mapping):
            candidates["scores"] = answer.get("scores")
            logs = answer.get("extra_logs")
            if isinstance(logs, Mapping):
                candidates.update(logs)
        # An average over the batch belongs to no row and is left out.
        columns: dict[str, list[Any]] = {
            str(name): column
            for name, column in candidates.items()
            if isinstance(column, list) and len(column) == count
        }
        outputs: list[ValueOutput] = []
        for i, reward in enumerate(rewards):
            extra = tuple((name, column[i]) for name, column in columns.items())
            outputs.append(value_output(reward, url, extra))
        return outputs
