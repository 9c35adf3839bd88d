import asyncio
import math
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from rmrl.data.json_text import StructuredReference
from rmrl.errors import RewardError
from rmrl.inference.reward_engine_base import ValueOutput
from rmrl.rewards.remote import REWARD_WIRES, WIRES
from rmrl.rewards.remote.client import HTTPClient
from rmrl.rewards.remote.spec import HTTPSpec, RewardRequest, RowRequest
from tests.patience import PATIENCE_S, expires
from tests.rewards.remote.server import Reply, Seen, Server, WithoutConnections, script, serving

ONE = RowRequest("2 + 2 = ", "4", "4")
ANSWERS: dict[str, Any] = {"openrlhf": [1.0], "slime": 1.0, "nemo_gym": {"reward": 1.0}}
"""Wire -> an answer with the reward 1 for one response."""


async def submit(
    server: Server, wire: str, requests: Sequence[RewardRequest], **changes: Any
) -> list[ValueOutput]:
    found = WIRES[wire](
        HTTPSpec(
            **(
                {
                    "url": server.url + "/get_reward",
                    "wire": wire,
                    "timeout_s": PATIENCE_S,
                    "max_tries": 1,
                }
                | changes
            )
        )
    )
    try:
        return await found.submit("reward", requests)
    finally:
        await found.aclose()


def lengths(seen: Seen) -> Reply:
    """A server of OpenRLHF's that rewards length."""
    rewards = [float(len(query)) for query in seen.body["query"]]
    return Reply(
        {
            "rewards": rewards,
            "scores": [r / 100 for r in rewards],
            "extra_logs": {"chars": [len(q) for q in seen.body["query"]]},
        }
    )


@pytest.mark.parametrize(
    ("wire", "entry"),
    [
        ("openrlhf", ("labels", [{"target": ["a"]}])),
        ("slime", ("label", {"target": ["a"]})),
    ],
)
async def test_a_server_gets_a_reference_as_its_row_has_it(wire: str, entry: Any) -> None:
    request = RewardRequest("q", "r", StructuredReference({"target": ["a"]}))
    with serving(script(Reply(ANSWERS[wire]))) as server:
        (output,) = await submit(server, wire, [request])
    assert output.value == 1
    assert entry in server.seen[0].body.items()


async def test_openrlhf_batches_and_keeps_the_order() -> None:
    requests = [RewardRequest("Q" * (i % 3), "r" * i, None if i == 1 else str(i)) for i in range(7)]
    with serving(lengths) as server:
        outputs = await submit(server, "openrlhf", requests, batch_size=3)
    # lengths: (i % 3) + i
    assert [o.value for o in outputs] == [0, 2, 4, 3, 5, 7, 6]
    assert dict(outputs[5].extra) == {"scores": 0.07, "chars": 7}
    bodies = sorted((seen.body for seen in server.seen), key=lambda body: len(body["query"][0]))
    assert sorted(len(body["query"]) for body in bodies) == [1, 3, 3]
    first = next(body for body in bodies if body["query"][0] == "")
    assert first == {
        "query": ["", "Qr", "QQrr"],
        "prompts": ["", "Q", "QQ"],
        "labels": ["0", "", "2"],
    }


@pytest.mark.parametrize("rewards", [[1.0], [1.0, 2.0, 3.0], []])
async def test_openrlhf_wrong_number_of_rewards_fails_that_batch(rewards: list[float]) -> None:
    with serving(
        lambda seen: Reply({"rewards": rewards if len(seen.body["query"]) == 2 else [9.0]})
    ) as server:
        outputs = await submit(server, "openrlhf", [ONE, ONE, ONE], batch_size=2)
    assert [o.failure for o in outputs] == ["provider_error", "provider_error", ""]
    assert f"gave {len(rewards)} rewards for 2 responses" in outputs[0].detail
    assert math.isnan(outputs[0].value)
    assert outputs[2].value == 9.0


async def test_openrlhf_bad_rewards_fail_alone() -> None:
    rewards = b'{"rewards": [NaN, null, "7", true, Infinity, -2, [1.0], 1' + b"0" * 400 + b"]}"
    with serving(script(Reply(rewards))) as server:
        outputs = await submit(server, "openrlhf", [ONE] * 8)
    assert [o.failure for o in outputs] == ["provider_error"] * 3 + [""] + ["provider_error"] + [
        ""
    ] + ["provider_error"] * 2
    assert (outputs[3].value, outputs[5].value) == (1.0, -2.0)
    assert "gave nan as a reward" in outputs[0].detail
    assert "gave None as a reward" in outputs[1].detail
    assert "gave '7' as a reward" in outputs[2].detail


@pytest.mark.parametrize("answer", [{"reward": [1.0]}, {"rewards": 1.0}, "fine", None])
async def test_openrlhf_without_rewards(answer: Any) -> None:
    with serving(script(Reply(answer))) as server:
        [output] = await submit(server, "openrlhf", [ONE])
    assert output.failure == "provider_error"
    assert "without a list of 'rewards'" in output.detail


async def test_openrlhf_averages_belong_to_no_row() -> None:
    with serving(
        script(
            Reply(
                {"rewards": [1, 2], "scores": [1], "extra_logs": {"mean": 1.5, "each": ["a", "b"]}}
            )
        )
    ) as server:
        outputs = await submit(server, "openrlhf", [ONE, ONE])
    assert [dict(o.extra) for o in outputs] == [{"each": "a"}, {"each": "b"}]


async def test_a_bare_list_is_taken_for_the_rewards() -> None:
    with serving(script(Reply([0.5, -0.5]))) as server:
        assert [o.value for o in await submit(server, "openrlhf", [ONE, ONE])] == [0.5, -0.5]


async def test_slime_one_by_one_in_order() -> None:
    def answer(seen: Seen) -> Reply:
        number = float(seen.body["response"])
        return Reply(
            {"score": number, "why": "so"} if number % 2 else number, delay_s=0.02 * (5 - number)
        )

    with serving(answer) as server:
        outputs = await submit(server, "slime", [RewardRequest("p", str(i)) for i in range(5)])
    assert [o.value for o in outputs] == [0, 1, 2, 3, 4]
    assert [dict(o.extra) for o in outputs] == [{}, {"why": "so"}, {}, {"why": "so"}, {}]
    assert {"prompt": "p", "response": "3", "label": None} in [seen.body for seen in server.seen]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"points": 3}, "its keys: points"),
        ({"score": None}, "gave None"),
        ("7", "gave '7'"),
        (b"NaN", "gave nan"),
    ],
)
async def test_slime_without_a_number(answer: Any, said: str) -> None:
    with serving(script(Reply(answer))) as server:
        [output] = await submit(server, "slime", [ONE])
    assert output.failure == "provider_error"
    assert said in output.detail


async def test_slime_reward_is_another_name_of_score() -> None:
    with serving(script(Reply({"reward": 2, "note": 1}))) as server:
        [output] = await submit(server, "slime", [ONE])
    assert (output.value, output.extra) == (2.0, (("note", 1),))


@pytest.mark.parametrize("wire", REWARD_WIRES)
async def test_one_bad_request_spoils_no_other(wire: str) -> None:
    def answer(seen: Seen) -> Reply:
        poisoned = "bad" in str(seen.body)
        return Reply({"error": "too bad"}, 400) if poisoned else Reply(ANSWERS[wire])

    requests = [RowRequest("p", "bad" if i == 2 else "good") for i in range(5)]
    with serving(answer) as server:
        outputs = await submit(server, wire, requests, batch_size=1)
    assert [o.failure for o in outputs] == ["", "", "provider_error", "", ""]
    assert "400 Bad Request: too bad" in outputs[2].detail


@pytest.mark.parametrize("wire", REWARD_WIRES)
async def test_time_is_up(wire: str) -> None:
    with serving(script(Reply([1.0], delay_s=600.0))) as server:
        [output] = await submit(server, wire, [ONE], timeout_s=expires(0.2))
    assert output.failure == "timeout"
    assert output.detail.endswith(".")


@pytest.mark.parametrize("wire", REWARD_WIRES)
@pytest.mark.virtual_time
async def test_nothing_is_sent_after_cancellation(wire: str) -> None:
    server = WithoutConnections(script(Reply(1, 500)))
    spec = HTTPSpec(url="http://judge", wire=wire, max_tries=1000, max_concurrency=2, batch_size=1)
    remote = WIRES[wire](spec, HTTPClient(spec, transport=server))
    work = asyncio.create_task(remote.submit("reward", [ONE] * 10))
    await asyncio.sleep(1)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    arrived = len(server.seen)
    await asyncio.sleep(1000)  # pauses between tries are at most 20 s
    assert len(server.seen) == arrived >= 2
    await remote.aclose()


@pytest.mark.parametrize("wire", REWARD_WIRES)
async def test_entries_of_the_users_own(wire: str) -> None:
    with serving(script(Reply(ANSWERS[wire]))) as server:
        await submit(server, wire, [ONE], extra_body={"version": 2, "label": None, "labels": None})
    assert server.seen[0].body["version"] == 2
    assert not {"label", "labels"} & set(server.seen[0].body)


@pytest.mark.parametrize("wire", REWARD_WIRES)
async def test_a_method_the_wire_does_not_have(wire: str) -> None:
    with pytest.raises(RewardError, match="no method 'generate'"):
        await WIRES[wire](HTTPSpec(url="http://127.0.0.1:9", wire=wire)).submit("generate", [])


async def test_sixty_four_responses_at_once() -> None:
    all_have_come = threading.Event()

    def answer(seen: Seen) -> Reply:
        if seen.number == 64:
            all_have_come.set()
        assert all_have_come.wait(PATIENCE_S)
        return Reply(len(seen.body["response"]))

    requests = [RewardRequest("p", "x" * i) for i in range(64)]
    with serving(answer) as server:
        outputs = await submit(
            server, "slime", requests, max_concurrency=64, timeout_s=2 * PATIENCE_S
        )
    assert [o.value for o in outputs] == list(range(64))
    assert server.most == 64
