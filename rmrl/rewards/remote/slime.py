"""Wire of slime's and miles' `--rm-url`.

    POST {"prompt", "response", "label"}
    -> the reward: a number, or an object with "score" (or "reward") and further columns

A row without a ground truth has the label null, as those trainers send it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rmrl.data.json_text import reference_value
from rmrl.inference.reward_engine_base import ValueOutput
from rmrl.rewards.remote.client import HTTPClient, RemoteCallError
from rmrl.rewards.remote.spec import HTTPSpec, RewardRequest
from rmrl.rewards.remote.values import check_method, failed, value_output, with_extra
from rmrl.together import together


class SlimeWire:
    """Wire that posts one response at a time."""

    def __init__(self, spec: HTTPSpec, client: HTTPClient | None = None) -> None:
        self._spec = spec
        self._client = client or HTTPClient(spec)

    async def submit(self, method: str, requests: Sequence[RewardRequest]) -> list[ValueOutput]:
        """See `Wire.submit`. The only method is "reward"."""
        check_method(method, "slime")
        return await together(map(self._one, requests))

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _one(self, request: RewardRequest) -> ValueOutput:
        label = reference_value(request.label)
        body = {"prompt": request.prompt, "response": request.response, "label": label}
        try:
            answer = await self._client.post(with_extra(body, self._spec))
        except RemoteCallError as error:
            return failed(error.failure, error.detail)
        if not isinstance(answer, Mapping):
            return value_output(answer, self._client.shown_url)
        name = "score" if "score" in answer else "reward"
        if name not in answer:
            keys = self._client.shown(", ".join(map(str, answer)) or "none")
            return failed(
                "provider_error",
                f"{self._client.shown_url} answered an object without 'score' or 'reward' (its"
                f" keys: {keys}).",
            )
        columns = {str(key): value for key, value in answer.items()}
        score = columns.pop(name)
        return value_output(score, self._client.shown_url, tuple(columns.items()))
