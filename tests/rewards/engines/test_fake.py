import math
import subprocess
import sys
from typing import Any

import pytest

from rmrl.errors import EngineLoadError, InfrastructureError
from rmrl.rewards.engines import build_engine
from rmrl.rewards.engines.base import EngineSpec, GenerateRequest, PoolingRequest, RewardEngine
from rmrl.rewards.engines.fake import EXIT_CODE, token_value
from rmrl.types import Sampling


def started(**kwargs: Any) -> RewardEngine:
    engine = build_engine(fake_spec(**kwargs))
    engine.start()
    return engine


def fake_spec(**kwargs: Any) -> EngineSpec:
    return EngineSpec(
        path="nowhere",
        runner="pooling",
        name="fake",
        dtype="float32",
        max_model_len=None,
        max_num_seqs=4,
        max_num_batched_tokens=64,
        tensor_parallel_size=1,
        gpu_memory_utilization=0.5,
        kv_cache_bytes=0,
        device="cpu",
        threads=1,
        kwargs=kwargs,
    )


def test_values_depend_on_tokens_and_their_order() -> None:
    # 1*10 + 2*20 = 50 -> 50/500 - 1; 1*20 + 2*10 = 40 -> 40/500 - 1
    assert token_value((10, 20)) == pytest.approx(-0.9)
    assert token_value((20, 10)) == pytest.approx(-0.92)
    assert [v.value for v in started().classify([PoolingRequest((10, 20)), PoolingRequest((20, 10))])] == pytest.approx([-0.9, -0.92])


def test_scripted_value_and_overlong() -> None:
    values = started(value=0.25, max_model_len=3).classify([PoolingRequest((1, 2, 3)), PoolingRequest((1, 2, 3, 4))])
    assert values[0].value == 0.25
    assert math.isnan(values[1].value)
    assert values[1].error == "overlong"


def test_scripted_texts() -> None:
    engine = started(text="Score: 7", texts={"8 9": "Score: 2"})
    requests = [GenerateRequest((1, 2), Sampling(max_tokens=8, n=2)), GenerateRequest((7, 8, 9), Sampling(max_tokens=1))]
    assert [[(t.text, t.finish_reason) for t in texts] for texts in engine.generate(requests)] == [
        [("Score: 7", "stop")] * 2,
        [("Score:", "length")],
    ]


def test_unscripted_text_is_a_digit_or_the_first_choice() -> None:
    engine = started()
    plain = engine.generate(
        [GenerateRequest((1, 2), Sampling(max_tokens=4)), GenerateRequest((1,), Sampling(max_tokens=4, choice=("A", "B")))]
    )
    assert [texts[0].text for texts in plain] == ["3", "A"]


def test_sleeping_engines_refuse() -> None:
    engine = started()
    assert (engine.ping(), engine.resident_bytes()) == ("awake", 2**30)
    engine.sleep(2)
    assert (engine.ping(), engine.resident_bytes()) == ("asleep 2", 0)
    with pytest.raises(InfrastructureError, match="asleep 2"):
        engine.classify([PoolingRequest((1,))])
    engine.wake()
    assert engine.classify([PoolingRequest((1,))])[0].value == token_value((1,))


def test_failures_on_request() -> None:
    with pytest.raises(EngineLoadError, match="no room"):
        started(fail_to_start="no room")
    engine = started(fail_on_call=2)
    engine.classify([])
    with pytest.raises(InfrastructureError, match="call 2"):
        engine.generate([])
    engine.classify([])


def test_death_on_request() -> None:
    code = (
        "from rmrl.rewards.engines import build_engine, EngineSpec\n"
        "engine = build_engine(EngineSpec(path='x', runner='pooling', name='fake', dtype='f', max_model_len=9, max_num_seqs=1,"
        " max_num_batched_tokens=1, tensor_parallel_size=1, gpu_memory_utilization=0.5, kv_cache_bytes=0, device='cpu', threads=1,"
        " kwargs={'die_on_call': 2}))\n"
        "engine.start(); engine.classify([]); engine.classify([])"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == EXIT_CODE
