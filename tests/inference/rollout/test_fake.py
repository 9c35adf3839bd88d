import math
from typing import Any

import pytest

from rmrl.config.schema.rollout import RolloutConfig
from rmrl.errors import InfrastructureError
from rmrl.inference.rollout import build_engine
from rmrl.inference.rollout_base import RolloutEngineSettings
from rmrl.types import Generation, Sampling
from tests.support import fakes
from tests.support.fake_rollout import FakeRollout

PROMPTS = [[1, 2], [3]]


async def started(**kwargs: Any) -> FakeRollout:
    settings = RolloutEngineSettings.of(
        RolloutConfig(name=fakes.ROLLOUT, engine_kwargs={fakes.ROLLOUT: kwargs}),
        path="m",
        tokenizer=None,
        device="cpu",
        threads=1,
        max_model_len=64,
        trust_remote_code=False,
    )
    engine = build_engine(fakes.ROLLOUT, settings)
    assert isinstance(engine, FakeRollout)
    await engine.start()
    return engine


async def sampled(engine: FakeRollout, **sampling: Any) -> list[Generation]:
    return [g async for g in engine.generate(PROMPTS, Sampling(**({"max_tokens": 16} | sampling)))]


def described(generations: list[Generation]) -> list[tuple[Any, ...]]:
    return [(g.prompt_index, g.sample_index, g.text, tuple(g.token_ids)) for g in generations]


async def test_equal_seeds_give_equal_tokens() -> None:
    first, second = await sampled(await started(), n=2), await sampled(await started(), n=2)
    assert described(first) == described(second)
    assert [(g.prompt_index, g.sample_index) for g in first] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert len({tuple(g.token_ids) for g in first}) == 4
    assert described(await sampled(await started(), n=2, seed=7)) != described(first)


async def test_greedy_samples_are_equal() -> None:
    first, second, *_ = await sampled(await started(), n=2, temperature=0.0)
    assert first.token_ids.tolist() == second.token_ids.tolist()


async def test_shape_of_a_sample() -> None:
    engine = await started(vocabulary=4, lengths=[3, 3])
    cut, whole = (await sampled(engine, max_tokens=2))[0], (await sampled(engine, max_tokens=3))[0]
    assert (len(cut.token_ids), cut.finish_reason) == (2, "length")
    assert (len(whole.token_ids), whole.finish_reason) == (3, "stop")
    assert whole.logprobs == pytest.approx([-math.log(4)] * 3)
    assert all(0 <= t < 4 for t in whole.token_ids)
    assert whole.text == " ".join(map(str, whole.token_ids))


async def test_new_weights_change_samples_and_version() -> None:
    engine = await started()
    before = await sampled(engine)
    await engine.load_weights("w", version=3)
    after = await sampled(engine)
    assert {g.policy_version for g in after} == {3}
    assert [g.token_ids.tolist() for g in before] != [g.token_ids.tolist() for g in after]
    assert engine.published == ["w"]


async def test_sleep() -> None:
    engine = await started()
    await engine.sleep(2)
    assert await engine.resident_bytes() == 0
    with pytest.raises(InfrastructureError, match="asleep 2"):
        await sampled(engine)
    await engine.wake(["weights"])
    with pytest.raises(InfrastructureError, match="asleep"):
        await sampled(engine)
    await engine.wake(["kv_cache"])
    assert len(await sampled(engine)) == 2
    assert engine.log == ["start", "sleep 2", "wake weights", "wake kv_cache"]


async def test_failure_on_request() -> None:
    engine = await started(fail_on_sample=3)
    await sampled(engine)
    with pytest.raises(InfrastructureError, match="sample 3"):
        await sampled(engine)
