"""benchmarks/serve.py counts what its clients see."""

from __future__ import annotations

import asyncio
import json

import pytest

from benchmarks import serve
from benchmarks.serve_clients import Clients, Load, bodies_of, percentile
from tests.serve.conftest import Served, bench, served, tokenizer
from tests.serve.live import live

__all__ = ["bench", "served", "tokenizer"]


def test_percentiles_by_hand() -> None:
    values = [3.0, 1.0, 2.0, 4.0]
    # the second, the fourth and the fourth of the ordered four
    assert [percentile(values, share) for share in (50, 95, 99)] == [2.0, 4.0, 4.0]
    assert percentile([], 99) == 0.0


def test_bodies_hold_every_row_once() -> None:
    bodies = bodies_of([{"prompt": str(place)} for place in range(5)], 2)
    rows = [json.loads(body)["rows"] for body in bodies]
    assert [len(each) for each in rows] == [2, 2, 1]
    assert [row["prompt"] for each in rows for row in each] == ["0", "1", "2", "3", "4"]


def test_a_wrong_answer_is_one_that_differs_where_there_is_a_reward() -> None:
    alone = Load(answers={0: {"rows": [{"reward": 0.5}, {"reward": 0.25}, {"reward": 1.0}]}})
    load = Load(answers={0: {"rows": [{"reward": 0.5}, {"reward": 0.75}, {"reward": None}]}})
    assert serve.wrong(load, alone) == 1
    assert serve.missing(load.answers[0]) == 1


def test_growth_compares_the_second_quarter_with_the_last() -> None:
    samples = [{"minute": 0.0, "server": value, "all": 2 * value} for value in (9, 1, 5, 3)]
    assert serve.growth(samples)["all_mib"] == {"second_quarter": 2, "last_quarter": 6}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_clients_count_answers_and_cancelled_requests(served: Served) -> None:
    rows = [{"prompt": "p", "response": "r" * length} for length in range(1, 9)]
    with live(served) as address:
        port = int(address.rpartition(":")[2])
        load = asyncio.run(Clients(port=port, count=3, bodies=bodies_of(rows, 2)).run())
        slow = Clients(port=port, count=2, bodies=bodies_of(rows, 4), trickle_s=0.001)
        trickled = asyncio.run(slow.run())
        gone = Clients(
            port=port, count=1, bodies=bodies_of(rows, 4), cancel_every=2, cancel_after_s=0.0
        )
        left = asyncio.run(gone.run())
    assert load.codes == {"200": 4}
    rewards = [row["reward"] for place in range(4) for row in load.answers[place]["rows"]]
    assert rewards == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
    assert len(load.latencies_s) == 4
    assert trickled.codes == {"200": 2}
    assert left.codes == {"200": 1, "cancelled": 1}
    assert load.numbers(8)["codes"] == {"200": 4}
