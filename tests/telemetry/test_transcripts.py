"""Scored samples on disk."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from rmrl.telemetry import jsonl, transcripts
from rmrl.telemetry.transcripts import SampleWriter
from rmrl.types import Conversation, Prompt, Response, RewardBatch, ScoreResult, Scores
from tests.patience import PATIENCE_S, expires


def sample(count: int) -> tuple[list[Response], RewardBatch]:
    """`count` answers to one prompt; the last one has no verdict."""
    prompt = Prompt(
        id="t:1",
        messages=[{"role": "user", "content": "2+2?"}],
        token_ids=(1,),
        ground_truth="4",
        data_source="sums",
    )
    answers = [
        Response(
            prompt=prompt,
            text=f"é{n}",
            token_ids=(1, 2),
            logprobs=None,
            finish_reason="stop",
            policy_version=7,
        )
        for n in range(count)
    ]
    good = ScoreResult(
        value=0.5,
        extra={"why": math.nan, "parts": np.asarray([1.0])},
        raw_text="Score: 5",
        rendered="Rate this: é",
    )
    bad = ScoreResult(value=None, status="unparseable", detail="no number")
    scores = Scores(names=("judge",), results=((*[good] * (count - 1), bad),))
    rewards_B = np.asarray([0.25] * (count - 1) + [math.nan])
    return answers, RewardBatch(
        scores=scores,
        weights_C=np.asarray([0.5]),
        rewards_B=rewards_B,
        keep_B=np.isfinite(rewards_B),
    )


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_line_says_everything(tmp_path: Path) -> None:
    responses, rewards = sample(2)
    writer = SampleWriter(tmp_path / "samples.jsonl")
    assert writer.write(3, responses, rewards, advantages_B=[1.5, math.nan]) == 2
    assert writer.flush()
    first, second = rows(tmp_path / "samples.jsonl")
    verdict = {
        "score": 0.5,
        "status": "ok",
        "detail": "",
        "extra": {"why": None, "parts": [1.0]},
        "rendered": "Rate this: é",
        "raw": "Score: 5",
    }
    assert first == {
        "step": 3,
        "prompt_id": "t:1",
        "data_source": "sums",
        "ground_truth": "4",
        "extra_info": {},
        "messages": [{"role": "user", "content": "2+2?"}],
        "response": "é0",
        "response_tokens": 2,
        "finish_reason": "stop",
        "policy_version": 7,
        "scores": {"judge": verdict},
        "weights": {"judge": 0.5},
        "reward": 0.25,
        "kept": True,
        "advantage": 1.5,
    }
    assert (second["reward"], second["advantage"], second["kept"]) == (None, None, False)
    assert second["scores"]["judge"] | {"rendered": "", "raw": "", "extra": {}} == {
        "score": None,
        "status": "unparseable",
        "detail": "no number",
        "extra": {},
        "rendered": "",
        "raw": "",
    }
    assert "é" in (tmp_path / "samples.jsonl").read_bytes().decode("utf-8")
    writer.close()


def test_limit_and_resume_cut(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    writer = SampleWriter(path, 2)
    for step in (1, 2, 3):
        assert writer.write(step, *sample(4)) == 2
    writer.close()
    writer.close()
    assert writer.write(4, *sample(4)) == 0
    resumed = SampleWriter(path, 2, resume_step=1)
    resumed.write(2, *sample(4))
    resumed.close()
    assert [row["step"] for row in rows(path)] == [1, 1, 2, 2]


def test_limit_0_writes_nothing(tmp_path: Path) -> None:
    writer = SampleWriter(tmp_path / "samples.jsonl", 0)
    assert writer.write(1, *sample(2)) == 0
    writer.close()


def test_a_full_disk_is_reported_once_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer = SampleWriter(tmp_path / "samples.jsonl")
    with Path("/dev/full").open(
        "wb"
    ) as full:  # every write to it fails with "No space left on device"
        os.dup2(full.fileno(), writer._file.fileno())
    writer.write(1, *sample(2))
    assert not writer.flush()
    assert writer.write(2, *sample(2)) == 0
    writer.close()
    (message,) = caplog.messages
    assert "No space left on device" in message


def test_writing_does_not_hold_up_the_run_and_a_flush_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "samples.jsonl"
    may_write = threading.Event()
    append = jsonl.append

    def slow(*args: object) -> None:
        assert may_write.wait(PATIENCE_S)
        append(*args)

    monkeypatch.setattr(jsonl, "append", slow)
    writer = SampleWriter(path)
    writer.write(1, *sample(2))
    writer.write(2, *sample(2))
    assert rows(path) == []
    assert not writer.flush(timeout_s=expires(0.01))
    may_write.set()
    assert writer.flush()
    assert [row["step"] for row in rows(path)] == [1, 1, 2, 2]
    writer.close()


def test_a_sample_that_cannot_be_written_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object) -> None:
        raise RecursionError("too deep")

    monkeypatch.setattr(jsonl, "append", broken)
    writer = SampleWriter(tmp_path / "samples.jsonl")
    writer.write(7, *sample(1))
    with pytest.raises(RuntimeError, match=r"step 7 .*samples\.jsonl: RecursionError: too deep"):
        writer.flush()
    writer.close()


def test_a_file_that_accepts_nothing_is_given_up_and_holds_up_neither_steps_nor_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    may_write = threading.Event()
    monkeypatch.setattr(jsonl, "append", lambda *_: may_write.wait(600))
    monkeypatch.setattr(transcripts, "FLUSH_S", 0.05)
    writer = SampleWriter(tmp_path / "samples.jsonl")
    begun = time.monotonic()
    # The thread has one step, four wait, the sixth finds no room.
    counts = [writer.write(step, *sample(2)) for step in range(1, 8)]
    assert counts[:4] == [2, 2, 2, 2]
    assert counts[-1] == 0
    assert not writer.flush()
    writer.close()
    writer.close()
    assert time.monotonic() - begun < 300
    (message,) = caplog.messages
    assert "accepted none within 0.05 s" in message
    may_write.set()


def test_the_end_does_not_wait_for_ever_for_a_step_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    may_write = threading.Event()
    monkeypatch.setattr(jsonl, "append", lambda *_: may_write.wait(600))
    monkeypatch.setattr(transcripts, "FLUSH_S", 0.05)
    writer = SampleWriter(tmp_path / "samples.jsonl")
    writer.write(1, *sample(2))
    writer.close()
    assert not writer._file.closed  # closing waits for the thread that writes
    (message,) = caplog.messages
    assert "accepted none within 0.05 s" in message
    may_write.set()


@pytest.mark.parametrize(("read", "opens_thinking"), [("the answer", True), ("", False)])
def test_what_a_reward_read_where_it_is_another_text(
    tmp_path: Path, read: str, opens_thinking: bool
) -> None:
    """An empty part is written as well."""
    answers, batch = sample(2)
    first, second = batch.scores.results[0]
    results = ((dataclasses.replace(first, read=read), second),)
    prompt = dataclasses.replace(answers[0].prompt, opens_thinking=opens_thinking)
    answers[0] = dataclasses.replace(answers[0], prompt=prompt)
    writer = SampleWriter(tmp_path / "samples.jsonl")
    scores = dataclasses.replace(batch.scores, results=results)
    writer.write(1, answers, dataclasses.replace(batch, scores=scores))
    writer.close()
    one, two = rows(tmp_path / "samples.jsonl")
    assert one["scores"]["judge"]["read"] == read
    assert one["opens_thinking"] is opens_thinking
    assert "read" not in two["scores"]["judge"]
    assert "opens_thinking" not in two


def test_a_played_response_is_its_messages_and_what_was_recorded(tmp_path: Path) -> None:
    answers, rewards = sample(2)
    turns = [
        *answers[0].prompt.messages,
        {"role": "assistant", "content": "I ask."},
        {"role": "tool", "content": "4"},
        {"role": "assistant", "content": "4"},
    ]
    talks = [
        Conversation(messages=turns, first=1, rewards={"right": 1.0}, stop="done"),
        Conversation(
            messages=turns[:1], first=1, rewards={"right": 0.0}, status="timeout", detail="60 s"
        ),
    ]
    for place, talk in enumerate(talks):
        prompt = dataclasses.replace(answers[place].prompt, conversation=talk)
        answers[place] = dataclasses.replace(answers[place], prompt=prompt)
    writer = SampleWriter(tmp_path / "samples.jsonl")
    writer.write(1, answers, rewards)
    writer.close()
    lines = (tmp_path / "samples.jsonl").read_text(encoding="utf-8").splitlines()
    played, failed = map(json.loads, lines)
    assert played["response"] == turns[1:]
    assert (played["env.status"], played["env.stop"], played["score_env.right"]) == (
        "ok",
        "done",
        1.0,
    )
    assert failed["response"] == answers[1].text
    assert (failed["env.status"], failed["env.detail"], failed["score_env.right"]) == (
        "timeout",
        "60 s",
        None,
    )
