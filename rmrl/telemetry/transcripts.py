"""Scored samples as JSON lines: the prompt, the response, the input and output of every judge, and
the weight of its score.

One line per response:
    {"step", "prompt_id", "data_source", "ground_truth", "extra_info", "messages", "rm_prompt",
      "rm_prompt_<name>", "response",
     "response_tokens", "finish_reason", "policy_version",
     "scores": {<name>: {"score", "status", "detail", "extra", "rendered", "raw"}}, "weights":
     {<name>: w},
     "reward", "kept", "advantage"}
`score` and `reward` are null where there is no verdict. `rendered` is the judge's input, `raw` its
output.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rmrl.telemetry import jsonl
from rmrl.types import Response, RewardBatch

SAMPLES_FILE = "samples.jsonl"

_log = logging.getLogger(__name__)


class SampleWriter:
    """Appends at most `limit_per_step` lines a step (-1: all), flushed each time.

    `resume_step`: step of the checkpoint from which the run continues; later lines are cut away
    (None: a start from nothing, all lines go). A disk that is full or gone is reported once as
    a warning and ends the writing, not the run.
    """

    def __init__(
        self,
        path: Path,
        limit_per_step: int = -1,
        *,
        resume_step: int | None = None,
    ) -> None:
        self._path = path
        self._limit = limit_per_step
        self._file = jsonl.open_at(path, resume_step)

    def write(
        self,
        step: int,
        responses: Sequence[Response],
        rewards: RewardBatch,
        *,
        advantages_B: Sequence[float] | np.ndarray | None = None,
    ) -> int:
        """Write the first `limit_per_step` of `responses`, groups being contiguous. Returns the
        number of written lines.

        `advantages_B`: one number per response, NaN where the row has none; None: not computed.
        """
        if self._file.closed or self._limit == 0:
            return 0
        count = len(responses) if self._limit < 0 else min(self._limit, len(responses))
        try:
            jsonl.append(self._file, _rows(step, responses[:count], (rewards, advantages_B)))
        except OSError as error:
            _log.warning(
                f"samples can no longer be written to {self._path} ({error}); training goes on"
                " without them."
            )
            self._abandon()
            return 0
        return count

    def close(self) -> None:
        """Close the file. Safe to call twice."""
        self._file.close()

    def _abandon(self) -> None:
        try:
            self._file.close()
        # buffered lines cannot be written either; the file counts as closed all the same
        except OSError as error:
            _log.debug("closing %s: %s", self._path, error)


def _rows(
    step: int, responses: Sequence[Response], numbers: tuple[RewardBatch, Any]
) -> Iterator[dict[str, Any]]:
    rewards, advantages_B = numbers
    names = rewards.scores.names
    weights = np.asarray(rewards.weights_C, dtype=np.float64)
    for b, response in enumerate(responses):
        prompt = response.prompt
        rm_prompts: dict[str, Any] = {}
        for name, text in prompt.rm_prompts.items():
            rm_prompts[f"rm_prompt_{name}" if name else "rm_prompt"] = text
        scores: dict[str, Any] = {}
        for name, column in zip(names, rewards.scores.results, strict=True):
            result = column[b]
            scores[name] = {
                "score": result.value,
                "status": result.status,
                "detail": result.detail,
                "extra": result.extra,
                "rendered": result.rendered,
                "raw": result.raw_text,
            }
            if result.steps:
                scores[name]["steps"] = [[step.end, step.value] for step in result.steps]
        yield {
            "step": step,
            "prompt_id": prompt.id,
            "data_source": prompt.data_source,
            "ground_truth": prompt.ground_truth,
            "extra_info": prompt.extra_info,
            "messages": prompt.messages,
            **rm_prompts,
            "response": response.text,
            "response_tokens": len(response.token_ids),
            "finish_reason": response.finish_reason,
            "policy_version": response.policy_version,
            "scores": scores,
            "weights": dict(zip(names, weights, strict=True)),
            "reward": rewards.rewards_B[b],
            "kept": bool(rewards.keep_B[b]),
            "advantage": None if advantages_B is None else advantages_B[b],
        }
