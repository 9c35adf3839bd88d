"""Scores of requests that overlap, places, deadlines, engines."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from rmrl.errors import EngineLostError
from rmrl.serve.problems import RequestError, request_error
from rmrl.serve.queue import RowQueue
from tests.offline.test_rewards import added
from tests.patience import PATIENCE_S, expires
from tests.rewards.parts import fake_host
from tests.serve.conftest import Served, client_of
from tests.virtual_time import MovedClock

SLOW = """
import time
def compute_score(data_source, solution_str, ground_truth):
    time.sleep(float(solution_str))
    return 1.0
"""
HELD = ("reward.models=[slow]", "reward.rule_timeout_s=600")
TRANSFORMS = {
    "plain": "",
    "group": "{length: {kind: standardize, by: group}}",
    "batch": "{length: {kind: standardize, by: batch}}",
    "running": "{length: {kind: standardize, by: running}}",
}


def many_rows(shift: int = 0) -> list[dict[str, Any]]:
    """Groups whose rows lie apart, and lists of responses."""
    rows: list[dict[str, Any]] = []
    for number in range(40):
        length = 1 + (number * 7 + shift) % 11
        response: Any = ["a" * length, "b" * (length + 3)] if number % 4 == 0 else "c" * length
        rows.append({"prompt": f"question {number % 9}", "response": response})
    return rows


@pytest.mark.parametrize("name", TRANSFORMS)
async def test_scores_of_clients_at_the_same_time_are_those_of_rmrl_score(
    served: Served, name: str
) -> None:
    """Batches of 12, smaller than a request: running statistics go on within a request and start
    anew with each one."""
    keys = ["data.batch_size=12"]
    if TRANSFORMS[name]:
        keys.append(f"reward.transforms={TRANSFORMS[name]}")
    expected: list[list[dict[str, Any]]] = []
    for shift in range(3):
        data = served.bench.folder / f"rows-{shift}.jsonl"
        data.write_text("".join(json.dumps(row) + "\n" for row in many_rows(shift)))
        out = served.bench.folder / f"scored-{shift}.jsonl"
        checked = served.bench.checked(f"data.files={data}", f"out={out}", *keys)
        await asyncio.to_thread(served.bench.score, checked)
        expected.append([added(json.loads(line)) for line in out.read_text().splitlines()])
    async with served.client(*keys) as client:
        bodies = [{"rows": many_rows(shift)} for shift in (0, 1, 2, 0, 1, 2)]
        bodies[3]["stream"] = True
        posts = [client.post("/v1/score", json=body) for body in bodies]
        answers = await asyncio.gather(*posts)
    for number, answer in enumerate(answers):
        if number == 3:
            lines = [json.loads(line) for line in answer.text.splitlines()]
            rows = sorted(lines[:-1], key=lambda row: row["index"])
        else:
            rows = answer.json()["rows"]
        assert [added(row) for row in rows] == expected[number % 3], (name, number)


async def test_a_full_queue_is_429_and_a_request_past_its_deadline_504(served: Served) -> None:
    (served.bench.folder / "functions" / "slow.py").write_text(SLOW)
    keys = (*HELD, "serve.max_rows=2", "serve.max_queue_rows=2")
    async with served.service(*keys) as service, client_of(service) as client:
        two = {"rows": [{"prompt": "p", "responses": ["600", "600"]}]}
        first = asyncio.create_task(client.post("/v1/score", json=two))
        while not service.queue.rows:
            await asyncio.sleep(0.01)
        full = await client.post("/v1/score", json={"rows": [{"prompt": "p", "response": "0"}]})
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert service.queue.rows == 0
        late = await client.post("/v1/score", json={**two, "timeout_s": expires(0.3)})
        assert service.queue.rows == 0
        large = await client.post(
            "/v1/score", json={"rows": [{"prompt": "p", "responses": ["0"] * 3}]}
        )
        text = service.metrics.text().decode()
    assert full.status_code == 429
    assert int(full.headers["retry-after"]) >= 1
    assert late.status_code == 504
    assert "not scored within 0.3 s" in late.json()["error"]["message"]
    assert large.status_code == 413
    assert large.json()["error"]["field"] == "rows"
    assert 'rmrl_requests_total{code="504",route="/v1/score"} 1.0' in text
    assert "rmrl_queue_rows 0.0" in text


async def test_a_stream_past_its_deadline_ends_with_the_error(served: Served) -> None:
    (served.bench.folder / "functions" / "slow.py").write_text(SLOW)
    rows = [{"prompt": "p", "response": "0"}] * 31 + [{"prompt": "p", "response": "600"}]
    clock = MovedClock()
    clock.drive(asyncio.get_running_loop())
    keys = (*HELD, "reward.rule_workers=2")  # one stays with the row that never ends
    async with served.service(*keys) as service, client_of(service) as client:
        body = {"rows": rows, "stream": True, "timeout_s": 300.0}
        posted = asyncio.create_task(client.post("/v1/score", json=body))
        while "rmrl_rows_total 16.0" not in service.metrics.text().decode():
            await asyncio.sleep(0.01)
        clock.add(300)
        answer = await posted
        body = {"rows": rows[16:], "stream": True, "timeout_s": expires(0.1)}
        nothing = await client.post("/v1/score", json=body)
    *lines, last = served.lines(answer.text)
    assert [row["index"] for row in lines] == list(range(16))
    assert "not scored within 300 s" in last["error"]["message"]
    assert nothing.status_code == 504  # before the first line it is an answer of its own


async def test_while_it_shuts_down_new_requests_are_refused(served: Served) -> None:
    async with served.service() as service, client_of(service) as client:
        service.draining = True
        refused = await client.post("/v1/score", json={"rows": [{"prompt": "p", "response": "r"}]})
        ready = await client.get("/readyz")
    assert refused.status_code == ready.status_code == 503
    assert "shutting down" in refused.json()["error"]["message"]


def judged(served: Served) -> tuple[str, ...]:
    """A judge on a fake engine that always writes 3."""
    return (
        "reward.models=[judge]",
        f"reward.specs.judge.path={served.bench.folder}/judge-model",
        "reward.specs.judge.engine.kwargs.text=3",
    )


async def test_judges_of_several_clients_share_the_engines_calls(served: Served) -> None:
    host = fake_host()
    rows = [[{"prompt": f"p{c}", "response": f"r{c} {i}"} for i in range(3)] for c in range(8)]
    async with served.service(*judged(served), host=host) as service:
        async with client_of(service) as client:
            answers = await asyncio.gather(
                *(client.post("/v1/score", json={"rows": each}) for each in rows)
            )
            table = (await client.get("/v1/rewards")).json()
        text = service.metrics.text().decode()
    assert {answer.status_code for answer in answers} == {200}
    (process,) = host.spawned
    assert process.calls.count("generate") < 8
    (engine,) = table["engines"]
    assert (engine["name"], engine["state"]) == ("judge", "awake")
    assert table["rewards"][0]["runs"] == "engine"
    assert 'rmrl_engine_events_total{engine="judge",event="loads"} 1.0' in text
    assert "rmrl_rows_total 24.0" in text
    assert 'rmrl_reward_seconds_count{reward="judge",status="ok"} 24.0' in text


async def test_a_lost_engine_is_not_ready_and_is_started_again(served: Served) -> None:
    """The first process dies while nobody uses it; the watch notices it and starts another."""
    host = fake_host()
    async with (
        served.service(*judged(served), "serve.probe_s=0.02", host=host) as service,
        client_of(service) as client,
    ):
        assert (await client.get("/readyz")).status_code == 200
        await host.spawned[0].kill()
        await service.scorer.residency.probe(timeout_s=PATIENCE_S)
        not_ready = await client.get("/readyz")
        table = (await client.get("/v1/rewards")).json()
        watch = asyncio.create_task(service.keeper.watch())
        async with asyncio.timeout(PATIENCE_S):
            while (await client.get("/readyz")).status_code != 200:
                await asyncio.sleep(0.01)
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        answer = await client.post("/v1/score", json={"rows": [{"prompt": "p", "response": "r"}]})
    assert not_ready.status_code == 503
    assert "the engine of judge is lost" in not_ready.json()["reasons"][0]
    assert table["engines"][0]["state"] == "lost"
    assert answer.json()["rows"][0]["status_judge"] == "ok"
    assert len(host.spawned) == 2


async def test_an_engine_that_dies_twice_is_a_503_for_its_request_alone(served: Served) -> None:
    """start, resident_bytes and generate: every process dies with its first call."""
    host = fake_host(p0=2, p1=2)
    body = {"rows": [{"prompt": "p", "response": "r"}]}
    async with served.service(*judged(served), host=host) as service:
        async with client_of(service) as client:
            lost = await client.post("/v1/score", json=body)
            ready = await client.get("/readyz")
            again = await client.post("/v1/score", json=body)
        assert b'rmrl_requests_total{code="503",route="/v1/score"} 1.0' in service.metrics.text()
    assert lost.status_code == 503
    assert "died" in lost.json()["error"]["message"]
    assert int(lost.headers["retry-after"]) > 0
    assert ready.status_code == 503
    assert again.status_code == 200


def test_what_a_lost_process_printed_reaches_no_client() -> None:
    """An engine's output may hold the texts of other clients."""
    error = EngineLostError("the process of a.generate died; it printed last:\nprompt: private")
    answer = request_error(error)
    assert answer.status == 503
    assert answer.message == "EngineLostError: the process of a.generate died"


def test_the_time_until_places_are_free_follows_the_rate() -> None:
    now = [0.0]
    queue = RowQueue(100, clock=lambda: now[0])
    with queue.place(100):
        with pytest.raises(RequestError) as full, queue.place(1):
            pass
        assert full.value.retry_after_s == 10.0  # nothing is known yet
        now[0] = 5.0
    now[0] = 50.0  # idle time does not count
    with queue.place(90):
        # 100 responses in 5 s: 20 per second; 40 are too many, 2 s.
        assert queue.seconds_until(50) == pytest.approx(2.0)
    assert queue.rows == 0


async def test_an_engine_can_be_used_by_a_wire(served: Served) -> None:
    """`Service.ask` is the way of the wires that offer a judge itself."""
    from rmrl.inference.reward_engine_base import GenerateRequest
    from rmrl.types import Sampling

    async with served.service(*judged(served)) as service:
        request = GenerateRequest(token_ids=(1, 2, 3), sampling=Sampling(max_tokens=4))
        ((output,),) = await service.ask("judge", "generate", [request])
        assert output.text == "3"
        assert service.spec("judge").kind == "generative"
        assert service.tokenizer("judge") is not None
        assert service.queue.rows == 0


async def test_engines_that_do_not_fit_beside_each_other_take_turns_for_all_clients(
    served: Served,
) -> None:
    """Two engines of 6 GiB in 10 GiB; every request needs both."""
    gib = 2**30
    keys = (
        "reward.models=[judge,quality]",
        f"reward.specs.judge.path={served.bench.folder}/judge-model",
        f"reward.specs.quality.path={served.bench.folder}/scalar-model",
        "reward.specs.judge.engine.kwargs.text=3",
        "reward.specs.quality.engine.kwargs.value=2.0",
        f"reward.specs.judge.engine.kwargs.awake_bytes={6 * gib}",
        f"reward.specs.quality.engine.kwargs.awake_bytes={6 * gib}",
        "trainer.memory_budget_gb=10",
        "serve.turn_s=0.05",
    )
    async with served.service(*keys) as service, client_of(service) as client:

        async def several(number: int) -> set[float]:
            rewards: set[float] = set()
            for i in range(3):
                row = {"prompt": f"p{number}", "response": f"r{i}"}
                answer = await client.post("/v1/score", json={"rows": [row]})
                assert answer.status_code == 200, answer.text
                rewards.add(answer.json()["rows"][0]["reward"])
            return rewards

        async with asyncio.timeout(60):
            rewards = await asyncio.gather(*map(several, range(8)))
        states = service.scorer.residency.states
        metrics = service.metrics.text().decode()
    assert rewards == [{5.0}] * 8  # 3 + 2
    assert list(states.values()).count("awake") <= 1
    assert 'event="evictions"' in metrics
