"""Requests of rewards to a vLLM rollout engine are answered as by a reward engine with the same
weights, also while it samples, and with the weights that were published last."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rmrl.config.schema.rollout import RolloutConfig
from rmrl.inference.reward_engine_base import EngineSpec, GenerateRequest
from rmrl.inference.rollout_base import RolloutEngineSettings
from rmrl.inference.vllm.reward_engine import VLLMEngine
from rmrl.inference.vllm.rollout import VLLMRollout
from rmrl.types import Sampling
from tests.engine_models import write_llama
from tests.engine_process import run_in_engine_process

PROMPTS = [tuple((7 * i + 13 * n) % 1000 + 4 for i in range(n)) for n in (5, 40, 3, 90)]
TOKEN = Sampling(max_tokens=1, temperature=0.0)
GREEDY = Sampling(max_tokens=8, temperature=0.0, n=2, ignore_eos=True)
CHOICES = (40, 41, 42)
REQUESTS = [
    *(GenerateRequest(p, TOKEN, choice_tokens=CHOICES) for p in PROMPTS),
    *(GenerateRequest(p, GREEDY) for p in PROMPTS),
    GenerateRequest(PROMPTS[0], Sampling(max_tokens=4, n=3, choice=("yes", "no"))),
    GenerateRequest((5,) * 600, GREEDY),
]
SEEDED = GenerateRequest(PROMPTS[1], Sampling(max_tokens=6, n=3, temperature=1.0, seed=7))


def scenario(path: str, other: str) -> dict[str, Any]:
    return asyncio.run(_scenario(path, other))


async def _scenario(path: str, other: str) -> dict[str, Any]:
    config = RolloutConfig(dtype="float32", kv_cache_bytes=64 * 2**20, enable_prefix_caching=False)
    settings = RolloutEngineSettings.of(
        config,
        path=path,
        tokenizer=None,
        device="cpu",
        threads=1,
        max_model_len=512,
        trust_remote_code=False,
    )
    rollout = VLLMRollout(settings)
    await rollout.start()
    found: dict[str, Any] = {"policy": await rollout.answer(REQUESTS)}
    found["seeded"] = [await rollout.answer([SEEDED]), await rollout.answer([SEEDED])]

    async def sampled() -> list[tuple[int, ...]]:
        sampling = Sampling(max_tokens=16, temperature=1.0, n=2, seed=3)
        stream = rollout.generate(PROMPTS, sampling)
        samples = {(s.prompt_index, s.sample_index): s async for s in stream}
        return [tuple(samples[key].token_ids) for key in sorted(samples)]

    found["samples"] = await sampled()
    beside = await asyncio.gather(sampled(), rollout.answer(REQUESTS))
    found["samples beside"], found["policy beside"] = beside
    await rollout.sleep(1)
    await rollout.wake()
    found["policy awake again"] = await rollout.answer(REQUESTS)
    await rollout.shutdown()
    for name, folder in (("reward", path), ("other", other)):
        spec = EngineSpec(
            path=folder, runner="generate", name="vllm", device="cpu", threads=1, dtype="float32",
            max_model_len=512, max_num_seqs=16, max_num_batched_tokens=1024,
            tensor_parallel_size=1, gpu_memory_utilization=0.5, kv_cache_bytes=64 * 2**20,
        )  # fmt: skip
        engine = VLLMEngine(spec)
        engine.start()
        found[name] = engine.generate(REQUESTS)
        del engine
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("answers")
    paths = [str(write_llama(folder / f"m{seed}", seed=seed)) for seed in (0, 1)]
    # A fresh process, as a user has: all other engines are forked.
    return run_in_engine_process(scenario, *paths, fresh=True)


@pytest.mark.parametrize("way", ["policy", "policy beside", "policy awake again"])
def test_as_a_reward_engine_of_the_same_weights(found: dict[str, Any], way: str) -> None:
    for ours, theirs in zip(found[way][:4], found["reward"][:4], strict=True):
        # both up to a constant, which is 0 at temperature 1
        assert ours[0].choice_logprobs == pytest.approx(theirs[0].choice_logprobs, abs=1e-4)
    for ours, theirs in zip(found[way][4:8], found["reward"][4:8], strict=True):
        assert [o.text for o in ours] == [o.text for o in theirs]
        assert [(o.tokens_in, o.tokens_out, o.finish_reason) for o in ours] == [
            (o.tokens_in, o.tokens_out, o.finish_reason) for o in theirs
        ]
        assert len(ours) == 2
    chosen, overlong = found[way][8:]
    assert {output.text for output in chosen} <= {"yes", "no"}
    assert len(chosen) == 3
    assert [output.failure for output in overlong] == ["overlong", "overlong"]


def test_another_model_answers_otherwise(found: dict[str, Any]) -> None:
    ours = [output[0].choice_logprobs for output in found["policy"][:4]]
    other = [output[0].choice_logprobs for output in found["other"][:4]]
    assert all(a != pytest.approx(b, abs=1e-2) for a, b in zip(ours, other, strict=True))


def test_seeded_votes_are_drawn_again(found: dict[str, Any]) -> None:
    first, second = ([output.text for output in group] for (group,) in map(tuple, found["seeded"]))
    assert first == second
    assert len(set(first)) == 3


def test_samples_do_not_depend_on_what_is_judged_beside_them(found: dict[str, Any]) -> None:
    assert found["samples"] == found["samples beside"]
