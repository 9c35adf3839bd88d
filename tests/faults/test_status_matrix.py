"""Every status in every kind: a failure costs its own row, is told, and is never a number."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rmrl.inference.reward_engine_base import FAILURES
from rmrl.rewards.kinds import REWARD_KINDS
from rmrl.rewards.session.items import ResponseRow
from rmrl.types import STATUSES, Prompt, RewardBatch
from tests.faults.injections import (
    BAD,
    BAD_TOKENS,
    IMPOSSIBLE,
    INJECTIONS,
    Injection,
    answer,
    played,
    specs_of,
)
from tests.rewards.parts import make_scorer
from tests.rewards.remote.server import Reply, Server, serving
from tests.virtual_time import MovedClock

DEADLINE_S = 300.0
FINE = ("a", "four", "cc")
"""The other responses of the group; `BAD` stands third."""


def rows(*texts: str, plays: bool = False, ungiven: bool = False) -> list[ResponseRow]:
    """One group; the ground truth says which row it is. The criteria of `BAD` cannot be read.
    `plays`: an environment gave each its length as a reward, `ungiven`: but not `BAD`."""
    prompts: list[Prompt] = []
    for text in texts:
        criterion = {"text": "good", "choices": ["N", "Y"], "weight": 1 if text != BAD else "much"}
        prompts.append(
            Prompt(
                id=text,
                messages=[{"role": "user", "content": "Q"}],
                token_ids=(),
                ground_truth=text,
                extra_info={"rubrics": [criterion]},
            )
        )
        if plays:
            name = "other" if ungiven and text == BAD else "mine"
            talk = played(prompts[-1], **{name: float(len(text))})
            prompts[-1] = dataclasses.replace(prompts[-1], conversation=talk)
    return [ResponseRow(prompt=prompt, text=prompt.id, tokens=len(prompt.id)) for prompt in prompts]


async def scored(
    kind: str, injection: Injection, texts: Sequence[str], *, folder: Path, tokenizer: Any
) -> RewardBatch:
    with serving(answer(injection)) as server:
        scorer = make_scorer(specs_of(kind, injection, folder, url=server.url), tokenizer)
        late: list[asyncio.Task[None]] = []
        if BAD in texts and injection.reply is not None and injection.reply.delay_s:
            late.append(asyncio.create_task(pass_deadline(server, len(texts) - 1, injection)))
        try:
            group = rows(*texts, plays=kind == "environment", ungiven=injection.ungiven)
            return await asyncio.wait_for(scorer.score(group), DEADLINE_S)
        finally:
            for task in late:
                task.cancel()
            await scorer.close()


async def pass_deadline(server: Server, others: int, injection: Injection) -> None:
    """Move the loop's clock over the deadline of a row whose answer never comes, when the others
    have theirs."""
    clock = MovedClock()
    clock.drive(asyncio.get_running_loop())
    while server.answered < others:
        await asyncio.sleep(0.01)
    for _ in range(100):  # what has arrived is read
        await asyncio.sleep(0)
    clock.add(injection.timeout_s)


def test_the_table_is_whole() -> None:
    """A new kind or status has to be added to `injections`: how it comes about there, or why it
    cannot."""
    pairs = {(status, kind) for status in STATUSES for kind in REWARD_KINDS}
    assert pairs - INJECTIONS.keys() - IMPOSSIBLE.keys() == set()
    assert INJECTIONS.keys() & IMPOSSIBLE.keys() == set()
    assert (INJECTIONS.keys() | IMPOSSIBLE.keys()) <= pairs
    assert all(IMPOSSIBLE.values())


EVERY = [(status, kind, injection) for (status, kind), injection in INJECTIONS.items()]
for kind in ("generative", "group"):
    # A second model that keeps the best of a judge's votes, and fails.
    EVERY.append(("ok", kind, Injection(meta=True)))
    for status in FAILURES:
        script = {"failures": {BAD_TOKENS: status}}
        EVERY.append((status, kind, Injection(script=script, meta=True)))


@pytest.mark.parametrize(("status", "kind", "injection"), EVERY)
async def test_a_status_costs_its_own_row(
    status: str, kind: str, injection: Injection, tmp_path: Path, tokenizer: Any
) -> None:
    batch = await scored(
        kind, injection, [FINE[0], FINE[1], BAD, FINE[2]], folder=tmp_path, tokenizer=tokenizer
    )
    results = batch.scores.results[batch.scores.names.index("mine")]
    assert [(r.status, r.detail) for r in (results[0], results[1], results[3])] == [("ok", "")] * 3
    assert results[2].status == status, results[2].detail
    if status == "ok":
        assert results[2].value is not None
        assert batch.keep_B.all()
        return
    assert results[2].value is None
    assert results[2].detail.strip()
    assert batch.keep_B.tolist() == [True, True, status == "skipped", True]
    without = await scored(kind, injection, FINE, folder=tmp_path, tokenizer=tokenizer)
    assert batch.rewards_B[[0, 1, 3]].tolist() == without.rewards_B.tolist()


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Reply({"detail": "broken"}, status=500), "500 Internal Server Error: broken"),
        (Reply({"detail": "who are you"}, status=401), "401 Unauthorized: who are you"),
        (Reply(hang_up=True), "RemoteProtocolError"),
        (Reply(b"<html>"), "no JSON"),
        (Reply(None), "gave None as a reward"),
        (Reply({"value": 3}), "without 'score' or 'reward'"),
    ],
)
async def test_ways_of_a_server_to_fail(
    reply: Reply, said: str, tmp_path: Path, tokenizer: Any
) -> None:
    batch = await scored(
        "remote", Injection(reply=reply), ["a", BAD], folder=tmp_path, tokenizer=tokenizer
    )
    fine, bad = batch.scores.results[0]
    assert (fine.value, bad.value, bad.status) == (1.0, None, "provider_error")
    assert said in bad.detail


async def test_a_server_that_is_not_there(tmp_path: Path, tokenizer: Any) -> None:
    with serving(answer(Injection())) as server:
        url = server.url
    scorer = make_scorer(specs_of("remote", Injection(), tmp_path, url=url), tokenizer)
    batch = await scorer.score(rows("a", "b"))
    await scorer.close()
    assert batch.scores.status_BC.tolist() == [["provider_error"], ["provider_error"]]
    assert "ConnectError" in batch.scores.results[0][0].detail
    assert not batch.keep_B.any()


@pytest.mark.parametrize(
    "kind", ["generative", "critique", "group", "bradley_terry", "process", "teacher"]
)
async def test_a_response_that_does_not_fit_the_model_is_overlong(
    kind: str, tmp_path: Path, tokenizer: Any
) -> None:
    long = "x" * 5000  # the fake engine's context is 4096 tokens, one per character
    batch = await scored(
        kind,
        Injection(script={"text": "1"}),
        ["a", "four", long],
        folder=tmp_path,
        tokenizer=tokenizer,
    )
    assert batch.scores.status_BC[:, 0].tolist() == ["ok", "ok", "overlong"]
    assert "max_model_len is 4096" in batch.scores.results[0][2].detail
