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
output; `read` stands beside them where the reward read another text than the response, and
`opens_thinking` says whether the prompt ended inside a thinking block, where that is known. Where
an environment played, `response` lists all its messages, and the columns that
`rmrl.data.traces.stored_trace` describes hold what the environment recorded.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rmrl.data.json_text import reference_value
from rmrl.data.traces.stored_trace import DETAIL, SCORE, STATUS, STOP
from rmrl.telemetry import jsonl
from rmrl.types import Conversation, Response, RewardBatch

SAMPLES_FILE = "samples.jsonl"

FLUSH_S = 120.0
"""Seconds given to the steps that wait to be written."""
_WAITING_STEPS = 4

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Step:
    """Samples of a step that wait to be written."""

    step: int
    responses: Sequence[Response]
    rewards: RewardBatch
    advantages_B: Sequence[float] | np.ndarray | None


class SampleWriter:
    """Appends at most `limit_per_step` lines a step (-1: all), from a thread of its own: the lines
    for thousands of responses take seconds. The file is flushed after each step.

    `resume_step`: step of the checkpoint from which the run continues. Later lines are cut away
    (None: a start from nothing, all lines go). A disk that is full or gone, or that accepts nothing
    for FLUSH_S, is reported once as a warning and ends the writing, not the run.
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
        self._steps: queue.Queue[_Step | None] = queue.Queue(_WAITING_STEPS)
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._hangs = False
        """The thread did not come back from the file in time. It may still hold the file's lock,
        which closing would wait for."""

    def write(
        self,
        step: int,
        responses: Sequence[Response],
        rewards: RewardBatch,
        *,
        advantages_B: Sequence[float] | np.ndarray | None = None,
    ) -> int:
        """Hand the first `limit_per_step` of `responses` to the thread, groups being contiguous.
        Returns their number, 0 where nothing can be written any more. Waits only while several
        steps are not yet written, at most FLUSH_S. Raises RuntimeError for samples of an earlier
        step that could not be written for another reason than the disk.

        `advantages_B`: one number per response, NaN where the row has none. None: not computed.
        """
        self._raise_error()
        if self._hangs or self._file.closed or self._limit == 0:
            return 0
        count = len(responses) if self._limit < 0 else min(self._limit, len(responses))
        if self._thread is None:
            name = f"writer-{self._path.name}"
            self._thread = threading.Thread(target=self._work, name=name, daemon=True)
            self._thread.start()
        accepted = self._put(_Step(step, responses[:count], rewards, advantages_B))
        return count if accepted else 0

    def flush(self, timeout_s: float = FLUSH_S) -> bool:
        """Wait until every step's lines are in the file, at most `timeout_s`. Return whether
        they are. A checkpoint of a step comes after that, so that a resumed run has its lines.
        Raises as `write` does."""
        if self._hangs:
            return False
        with self._steps.all_tasks_done:
            written = self._steps.all_tasks_done.wait_for(
                lambda: not self._steps.unfinished_tasks, timeout_s
            )
        self._raise_error()
        if not written:
            _log.warning(
                f"samples of {self._steps.qsize() + 1} step(s) were not written to {self._path}"
                f" within {timeout_s:g} s; a run that resumes from here may lack them"
            )
        return written and not self._file.closed

    def close(self) -> None:
        """Write what waits, in at most two times FLUSH_S, and close the file. Safe to call
        twice."""
        thread = self._thread
        if thread is not None and thread.is_alive() and self._put(None):
            thread.join(FLUSH_S)
            if thread.is_alive():
                self._give_up()
        if thread is None or not thread.is_alive():
            self._file.close()
        self._raise_error()

    def _put(self, entry: _Step | None) -> bool:
        """Hand an entry to the thread. Return False where it cannot take one within FLUSH_S."""
        if self._hangs:
            return False
        try:
            self._steps.put(entry, timeout=FLUSH_S)
        except queue.Full:
            self._give_up()
            return False
        return True

    def _give_up(self) -> None:
        self._hangs = True
        _log.warning(
            f"samples can no longer be written to {self._path} (it accepted none within"
            f" {FLUSH_S:g} s); training goes on without them."
        )

    def _raise_error(self) -> None:
        error = self._error
        self._error = None
        if error is not None:
            raise error

    def _work(self) -> None:
        while (entry := self._steps.get()) is not None and not self._hangs:
            try:
                if not self._file.closed:
                    jsonl.append(self._file, _rows(entry))
            except OSError as error:
                _log.warning(
                    f"samples can no longer be written to {self._path} ({error}); training goes on"
                    " without them."
                )
                self._abandon()
            # A sample that cannot be written as JSON is a fault; the run's own thread raises it.
            except Exception as error:
                fault = RuntimeError(
                    f"samples of step {entry.step} could not be written to {self._path}:"
                    f" {type(error).__name__}: {error}"
                )
                fault.__cause__ = error
                self._error = self._error or fault
            finally:
                self._steps.task_done()
        self._steps.task_done()

    def _abandon(self) -> None:
        try:
            self._file.close()
        # buffered lines cannot be written either; the file counts as closed all the same
        except OSError as error:
            _log.debug("closing %s: %s", self._path, error)


def _rows(entry: _Step) -> Iterator[dict[str, Any]]:
    rewards = entry.rewards
    advantages_B = entry.advantages_B
    names = rewards.scores.names
    weights = np.asarray(rewards.weights_C, dtype=np.float64)
    for b, response in enumerate(entry.responses):
        prompt = response.prompt
        rm_prompts: dict[str, Any] = {
            f"rm_prompt_{name}" if name else "rm_prompt": text
            for name, text in prompt.rm_prompts.items()
        }
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
            if result.read is not None:
                scores[name]["read"] = result.read
            if result.steps and result.steps[0].turn is None:
                scores[name]["steps"] = [[step.end, step.value] for step in result.steps]
        opened: dict[str, Any] = {}
        if prompt.opens_thinking is not None:
            opened["opens_thinking"] = prompt.opens_thinking
        if prompt.conversation is not None:
            opened |= played_columns(prompt.conversation)
        yield {
            "step": entry.step,
            "prompt_id": prompt.id,
            "data_source": prompt.data_source,
            "ground_truth": reference_value(prompt.ground_truth),
            "extra_info": prompt.extra_info,
            "messages": prompt.messages,
            **rm_prompts,
            "response": response.text,
            **opened,
            "response_tokens": response.sampled,
            "finish_reason": response.finish_reason,
            "policy_version": response.policy_version,
            "scores": scores,
            "weights": dict(zip(names, weights, strict=True)),
            "reward": rewards.rewards_B[b],
            "kept": bool(rewards.keep_B[b]),
            "advantage": None if advantages_B is None else advantages_B[b],
        }


def played_columns(talk: Conversation) -> dict[str, Any]:
    """Return what an environment recorded, and its messages as the response."""
    columns: dict[str, Any] = {STATUS: talk.status, DETAIL: talk.detail, STOP: talk.stop}
    for name, reward in talk.rewards.items():
        columns[f"{SCORE}{name}"] = None
        if talk.status == "ok":
            columns[f"{SCORE}{name}"] = reward
    turns = list(talk.messages[talk.first :])
    if turns:
        columns["response"] = turns
    return columns
