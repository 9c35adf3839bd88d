"""The rollout engine on SGLang against stand-ins for its server: a real HTTP server on 127.0.0.1
each, no SGLang."""

import asyncio
import contextlib
import dataclasses
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import torch

from rmrl.config.schema.rollout import RolloutConfig
from rmrl.errors import DataError, EngineLoadError, InfrastructureError, StallError
from rmrl.inference.rollout_base import RolloutEngineSettings
from rmrl.inference.sglang.rollout import SGLangRollout
from rmrl.inference.sglang.rollout_wire import launch_command
from rmrl.inference.weights.file import write_weights
from rmrl.types import Generation, Sampling
from tests.inference.rollout.sglang_server import Protocol, recorded
from tests.patience import PATIENCE_S, expires
from tests.rewards.remote.server import Reply, Seen, Server, arrival, serving

SAMPLED = Sampling(max_tokens=8, temperature=0.7, top_p=0.9, top_k=20, n=2, seed=100, stop=("###",))
SHORT = Sampling(max_tokens=4, ignore_eos=True, seed=1)


def settings(device: Any = "cuda", **changed: Any) -> RolloutEngineSettings:
    config = RolloutConfig(
        name="sglang",
        max_num_seqs=4,
        timeout_s=changed.pop("timeout_s", PATIENCE_S),
        **changed.pop("config", {}),
    )
    decided = {
        "path": "qwen/policy",
        "tokenizer": None,
        "device": device,
        "threads": 1,
        "max_model_len": 64,
        "trust_remote_code": False,
    }
    return RolloutEngineSettings.of(config, **(decided | changed))


@contextlib.asynccontextmanager
async def attached(server: Server, **changed: Any) -> AsyncIterator[SGLangRollout]:
    clock = changed.pop("clock", time.monotonic)
    kwargs = {"base_url": server.url + "/"} | changed.pop("kwargs", {})
    engine = SGLangRollout(settings(kwargs=kwargs, **changed), clock=clock)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.shutdown()


async def sampled(
    engine: SGLangRollout, prompts: list[list[int]], sampling: Sampling
) -> list[Generation]:
    found = [g async for g in engine.generate(prompts, sampling)]
    return sorted(found, key=lambda g: (g.prompt_index, g.sample_index))


def weights(path: Path, value: float) -> Path:
    write_weights(path, [("w", torch.float32, [2])], [("w", torch.full((2,), value))])
    return path


def paths(server: Server) -> list[str]:
    return [
        seen.path.removeprefix("/")
        for seen in server.seen
        if seen.path not in ("/health", "/get_model_info", "/get_server_info")
    ]


async def test_samples_as_recorded() -> None:
    """Every sample has a seed of its own, 100 to 103; where 4 tokens fit, a prompt of one leaves
    room for 3."""
    with recorded("policy") as server:
        async with attached(server, max_model_len=10) as engine:
            first = await sampled(engine, [[21, 22]], SAMPLED)
        async with attached(server, max_model_len=4) as engine:
            second = await sampled(engine, [[23]], dataclasses.replace(SAMPLED, seed=102))
    assert [
        (g.sample_index, g.text, tuple(g.token_ids), tuple(g.logprobs), g.finish_reason)
        for g in first
    ] == [
        (0, "a b", (64, 65, 151645), (-0.5, -1.25, -0.125), "stop"),
        (1, "c d e f g h i j", tuple(range(60, 68)), (-2.0,) * 8, "length"),
    ]
    assert [(g.sample_index, len(g.token_ids), g.finish_reason) for g in second] == [
        (0, 3, "length"),
        (1, 2, "stop"),
    ]


async def test_what_the_server_says_instead_of_a_sample() -> None:
    asked = Sampling(max_tokens=8, temperature=0.7, top_p=0.9, top_k=20)
    with recorded("policy") as server:
        async with attached(server) as engine:
            for prompt, message in (
                (41, "with 400: Input token ids"),
                (42, "broke a sample off: Aborted"),
                (43, "with 500: CUDA out"),
            ):
                with pytest.raises(InfrastructureError, match=message):
                    await sampled(engine, [[prompt]], asked)
            [chosen] = await sampled(
                engine,
                [[44]],
                Sampling(max_tokens=8, temperature=0.0, ignore_eos=True, choice=("yes", "no.")),
            )
    assert (chosen.text, tuple(chosen.logprobs)) == ("yes", (-0.5,))


async def test_no_more_requests_at_once_than_max_num_seqs() -> None:
    protocol = Protocol(may_answer=False)
    with serving(protocol.answer) as server:
        async with attached(server) as engine:
            sampling = Sampling(max_tokens=3, n=4, seed=1)
            task = asyncio.create_task(sampled(engine, [[5], [6], [7]], sampling))
            await arrival(server, 3 + 4)
            protocol.may_answer.set()
            found = await task
    assert [(g.prompt_index, g.sample_index) for g in found] == [
        (p, s) for p in range(3) for s in range(4)
    ]
    assert server.most == 4


async def test_weights_travel_by_a_folder_that_is_gone_afterwards(tmp_path: Path) -> None:
    protocol = Protocol()
    with serving(protocol.answer) as server:
        async with attached(server) as engine:
            seen = []
            for version, value in enumerate((1.0, 2.0, 1.0), start=1):
                await engine.load_weights(
                    str(weights(tmp_path / "published", value)), version=version
                )
                seen += await sampled(engine, [[5]], SHORT)
    assert [g.policy_version for g in seen] == [1, 2, 3]
    first, other, again = (tuple(g.token_ids) for g in seen)
    assert first == again != other
    assert [path.name for path in tmp_path.iterdir()] == ["published"]
    assert [
        s.body["weight_version"] for s in server.seen if s.path == "/update_weights_from_disk"
    ] == ["1", "2", "3"]


async def test_refused_weights_leave_the_version_alone(tmp_path: Path) -> None:
    protocol = Protocol()
    with serving(protocol.answer) as server:
        async with attached(server) as engine:
            protocol.released = {"weights"}  # by someone else
            with pytest.raises(InfrastructureError, match="cannot update now"):
                await engine.load_weights(str(weights(tmp_path / "published", 1.0)), version=1)
            assert engine.version == 0


async def test_weights_loaded_in_flight(tmp_path: Path) -> None:
    protocol = Protocol(may_answer=False)
    with serving(protocol.answer) as server:
        async with attached(server) as engine:
            task = asyncio.create_task(sampled(engine, [[5], [6]], SHORT))
            await arrival(server, 5)  # health, two kinds of information, two samples
            with pytest.raises(InfrastructureError, match="with 2 samples under way"):
                await engine.sleep()
            await engine.load_weights(str(weights(tmp_path / "published", 1.0)), version=1)
            assert not task.done()
            protocol.may_answer.set()
            assert {g.policy_version for g in await task} == {0}  # what they began with
            assert {g.policy_version for g in await sampled(engine, [[5]], SHORT)} == {1}
    assert paths(server)[2:5] == [
        "pause_generation",
        "update_weights_from_disk",
        "continue_generation",
    ]


async def test_sleep_with_a_copy_of_the_weights() -> None:
    protocol = Protocol()
    with serving(protocol.answer) as server:
        async with attached(server) as engine:
            awake = await engine.resident_bytes()
            for level in (1, 2):
                await engine.sleep(level)
            assert (awake, await engine.resident_bytes()) == (
                int(1.25 * 2**30),
                0,
            )  # weights 1.0, KV cache 0.25 GiB
            await engine.wake(["weights"])
            assert await engine.resident_bytes() == 2**30
            await engine.wake()
            assert len(await sampled(engine, [[5]], SHORT)) == 1
    assert paths(server) == [
        "release_memory_occupation",
        "resume_memory_occupation",
        "resume_memory_occupation",
        "generate",
    ]


async def test_weights_without_a_copy_are_read_again_or_published_anew(tmp_path: Path) -> None:
    protocol, file = Protocol(backup=False), weights(tmp_path / "published", 1.0)
    with serving(protocol.answer) as server:
        async with attached(server, path=str(tmp_path)) as engine:
            await engine.load_weights(str(file), version=1)
            first = await sampled(engine, [[5]], SHORT)
            await engine.sleep()
            await engine.wake()
            assert await sampled(engine, [[5]], SHORT) == first
            await engine.sleep(2)
            await engine.load_weights(str(weights(tmp_path / "other", 2.0)), version=2)
            assert protocol.released == {"kv_cache"}
            await engine.wake()
            assert paths(server).count("update_weights_from_disk") == 3  # nothing was read twice
            (tmp_path / "other").unlink()
            await engine.sleep()
            with pytest.raises(InfrastructureError, match="publish weights before waking"):
                await engine.wake()
            with pytest.raises(InfrastructureError, match="asleep"):
                await sampled(engine, [[5]], SHORT)


async def test_a_server_without_memory_saver_keeps_its_memory() -> None:
    with serving(Protocol(memory_saver=False).answer) as server:
        async with attached(server) as engine:
            await engine.sleep()
            assert await engine.resident_bytes() == int(1.25 * 2**30)
            await engine.wake()
    assert paths(server) == []


async def test_what_is_left_behind_is_aborted() -> None:
    protocol = Protocol(may_answer=False)
    with serving(protocol.answer) as server:
        async with attached(server) as engine:
            task = asyncio.create_task(
                sampled(engine, [[5], [6], [7], [8], [9]], Sampling(max_tokens=3, n=2))
            )
            await arrival(
                server, 3 + 4
            )  # health, two kinds of information, as many samples as may be under way
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            begun = {seen.body["rid"] for seen in server.seen if seen.path == "/generate"}
            assert (set(protocol.aborted), len(begun)) == (begun, 4)
            protocol.may_answer.set()
            assert len(await sampled(engine, [[5]], SHORT)) == 1


class Clock:
    """Moved by hand; `looks`: how often it was read."""

    def __init__(self) -> None:
        self.now = 0.0
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return self.now

    def move(self, seconds: float) -> None:
        """Let the time pass, and wait until it was noticed."""
        self.now += seconds
        looks = self.looks + 3
        end = time.monotonic() + PATIENCE_S
        while self.looks < looks and time.monotonic() < end:
            time.sleep(0.001)


async def test_the_deadline_counts_from_the_last_finished_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """8 samples on a server that takes 15 s for each, one after another: 120 s in all, of which no
    80 s pass without a sample."""
    monkeypatch.setattr("rmrl.inference.sglang.rollout._LOOK_S", 0.01)
    protocol, clock = Protocol(), Clock()
    one_by_one = threading.Lock()

    def slow(seen: Seen) -> Reply:
        if seen.path != "/generate":
            return protocol.answer(seen)
        with one_by_one:
            clock.move(15.0)
            return protocol.answer(seen)

    with serving(slow) as server:
        async with attached(server, clock=clock, timeout_s=80.0) as engine:
            generations = await sampled(engine, [[5 + i] for i in range(8)], SHORT)
    assert len(generations) == 8
    assert clock.now == 120


async def test_an_engine_that_finishes_nothing_is_a_stall() -> None:
    protocol = Protocol(may_answer=False)
    with serving(protocol.answer) as server:
        async with attached(server, timeout_s=expires(0.1)) as engine:
            with pytest.raises(StallError, match=r"timeout_s=0\.1"):
                await sampled(engine, [[5]], SHORT)
    assert len(protocol.aborted) == 1


async def test_a_shutdown_ends_samples_under_way() -> None:
    with serving(Protocol(may_answer=False).answer) as server:
        async with attached(server) as engine:
            task = asyncio.create_task(sampled(engine, [[5]], SHORT))
            await arrival(server, 4)
            await engine.shutdown()
            with pytest.raises(InfrastructureError, match="shut down"):
                await task
            with pytest.raises(InfrastructureError, match="not started"):
                await sampled(engine, [[5]], SHORT)


async def test_prompts_that_do_not_fit() -> None:
    with serving(Protocol().answer) as server:
        async with attached(server) as engine:
            with pytest.raises(DataError, match="has 64 tokens"):
                await sampled(engine, [[1] * 64], SHORT)


@pytest.mark.parametrize(
    ("name", "load_timeout_s", "message"),
    [
        ("starting", expires(0.5), r"not healthy within 0\.5 s: it answered 503"),
        ("reward", PATIENCE_S, "writes no text"),
    ],
)
async def test_servers_that_cannot_be_used(
    name: str, load_timeout_s: float, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmrl.inference.sglang.server._PROBE_TIMEOUT_S", PATIENCE_S)
    with recorded(name) as server, pytest.raises(EngineLoadError, match=message):
        async with attached(server, kwargs={"load_timeout_s": load_timeout_s}):
            pass


async def test_without_sglang_the_way_out_is_said() -> None:
    with pytest.raises(
        EngineLoadError, match=r"engine_kwargs\.sglang\.base_url .*pip install sglang.*name=vllm"
    ):
        await SGLangRollout(settings()).start()


def test_the_command_line() -> None:
    kwargs = {
        "attention_backend": "triton",
        "load_timeout_s": 50,
        "enable_deterministic_inference": True,
    }
    words = launch_command(
        settings(kwargs=kwargs, tokenizer="words", config={"enable_prefix_caching": False}), 30001
    )
    options = dict(zip(words, [*words[1:], ""], strict=True))
    wanted = {
        "model-path": "qwen/policy", "tokenizer-path": "words", "host": "127.0.0.1", "port": "30001", "context-length": "64",
        "max-running-requests": "4", "chunked-prefill-size": "8192", "attention-backend": "triton", "random-seed": "0",
    }  # fmt: skip
    assert {name: options[f"--{name}"] for name in wanted} == wanted
    flags = {
        "--enable-memory-saver",
        "--enable-weights-cpu-backup",
        "--disable-radix-cache",
        "--enable-deterministic-inference",
    }
    assert flags <= set(words)
    assert not {"--trust-remote-code", "--load-timeout-s", "--disable-cuda-graph"} & set(words)
    assert not {"--enable-memory-saver", "--mem-fraction-static"} & set(
        launch_command(settings("cpu"), 1)
    )
