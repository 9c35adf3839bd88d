"""The native wire and the routes about the server, over the ASGI application."""

from __future__ import annotations

from tests.serve.conftest import Served

ROWS = [
    {"prompt": "p", "response": "four"},
    {"prompt": "q", "responses": ["x", "silent"]},
]


async def test_scores_by_hand_with_the_columns_of_rmrl_score(served: Served) -> None:
    async with served.client() as client:
        answer = await client.post("/v1/score", json={"rows": ROWS})
    assert answer.status_code == 200
    first, second = answer.json()["rows"]
    assert first == {
        "index": 0,
        "reward": 0.4,  # 4 characters / 10
        "score_length": 0.4,
        "status_length": "ok",
        "detail_length": "",
        "extra_length": '{"first": "f"}',
    }
    assert second["reward"] == [0.1, None]
    assert second["status_length"] == ["ok", "unparseable"]
    assert answer.json()["summary"] == {
        "responses": 3,
        "with_reward": 2,
        "mean_reward": 0.25,  # (0.4 + 0.1) / 2
        "mean_scores": {"length": 0.25},
        "missing": {"length": {"unparseable": 1}},
    }


async def test_a_stream_has_a_line_per_row_and_then_the_summary(served: Served) -> None:
    async with served.client() as client:
        answer = await client.post("/v1/score", json={"rows": ROWS, "stream": True})
    assert answer.headers["content-type"] == "application/x-ndjson"
    *rows, last = served.lines(answer.text)
    assert sorted(row["index"] for row in rows) == [0, 1]
    assert last["summary"]["responses"] == 3


async def test_it_is_live_before_it_is_ready(served: Served) -> None:
    async with served.client(opened=False) as client:
        assert (await client.get("/healthz")).status_code == 200
        not_ready = await client.get("/readyz")
        refused = await client.post("/v1/score", json={"rows": ROWS})
    assert not_ready.status_code == refused.status_code == 503
    assert "still loading" in not_ready.json()["reasons"][0]
    assert int(refused.headers["retry-after"]) > 0
