import math
import subprocess
import sys
from typing import Any

import pytest

from rmrl.errors import ConfigError, EngineLoadError, InfrastructureError
from rmrl.inference.reward_engine_base import (
    FAILURES,
    EmbedRequest,
    EngineSpec,
    GenerateRequest,
    PoolingRequest,
    RewardEngine,
    overlong_detail,
)
from rmrl.inference.reward_engines import build_engine
from rmrl.types import Sampling
from tests.support import fakes
from tests.support.fake_reward_engine import EXIT_CODE, token_value


def started(**kwargs: Any) -> RewardEngine:
    engine = build_engine(fake_spec(**kwargs))
    engine.start()
    return engine


def fake_spec(**kwargs: Any) -> EngineSpec:
    return EngineSpec(
        path="nowhere",
        runner="pooling",
        name=fakes.REWARD_ENGINE,
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
    assert [
        v.value for v in started().classify([PoolingRequest((10, 20)), PoolingRequest((20, 10))])
    ] == pytest.approx([-0.9, -0.92])


def test_scripted_value_and_overlong() -> None:
    values = started(value=0.25, max_model_len=3).classify(
        [PoolingRequest((1, 2, 3)), PoolingRequest((1, 2, 3, 4))]
    )
    assert values[0].value == 0.25
    assert math.isnan(values[1].value)
    assert (values[1].failure, values[1].detail) == ("overlong", overlong_detail(4, 3))


def test_scripted_texts() -> None:
    engine = started(text="Score: 7", texts={"8 9": "Score: 2"})
    requests = [
        GenerateRequest((1, 2), Sampling(max_tokens=8, n=2)),
        GenerateRequest((7, 8, 9), Sampling(max_tokens=1)),
    ]
    assert [[(t.text, t.finish_reason) for t in texts] for texts in engine.generate(requests)] == [
        [("Score: 7", "stop")] * 2,
        [("Score:", "length")],
    ]


def test_unscripted_text_is_a_digit_or_the_first_choice() -> None:
    engine = started()
    plain = engine.generate(
        [
            GenerateRequest((1, 2), Sampling(max_tokens=4)),
            GenerateRequest((1,), Sampling(max_tokens=4, choice=("A", "B"))),
        ]
    )
    assert [texts[0].text for texts in plain] == ["3", "A"]


def test_token_logits_are_those_of_the_tokens_up_to_each_position() -> None:
    request = PoolingRequest((10, 20, 30), positions=(0, 2))
    # 1*10 -> 10/500 - 1 = -0.98; 1*10 + 2*20 + 3*30 = 140 -> 140/500 - 1 = -0.72
    (plain,) = started().token_logits([request])
    assert [rows[0] for rows in plain.logits] == pytest.approx([-0.98, -0.72])
    (labelled,) = started(labels=2, value=0.5).token_logits([request])
    assert labelled.logits == ((0.5, -0.5), (0.5, -0.5))
    (overlong,) = started(max_model_len=2).token_logits([request])
    assert (overlong.logits, overlong.failure, overlong.tokens_in) == ((), "overlong", 3)


def test_texts_that_share_words_have_similar_vectors() -> None:
    texts = ["the red house", "House red THE", "the red car", "blue sky above"]
    vectors = [o.vector for o in started().embed([EmbedRequest(t) for t in texts])]
    cosines = [sum(a * b for a, b in zip(vectors[0], v, strict=True)) for v in vectors]
    assert cosines[:2] == pytest.approx([1.0, 1.0])
    assert cosines[1] > cosines[2] > cosines[3]
    assert started(max_model_len=2).embed([EmbedRequest("one two three")])[0].failure == "overlong"


def test_choice_logprobs() -> None:
    request = GenerateRequest((1, 2), Sampling(max_tokens=1), choice_tokens=(7, 8, 9))
    ((derived,),) = started().generate([request])
    assert sum(map(math.exp, derived.choice_logprobs)) == pytest.approx(1.0)
    # the logits differ by 3 * (9 - 7) / 500 between the first and the last
    assert derived.choice_logprobs[2] - derived.choice_logprobs[0] == pytest.approx(0.012)
    ((scripted,),) = started(choice_logprobs={"7": -0.5, 9: -2.0}).generate([request])
    assert scripted.choice_logprobs == (-0.5, -math.inf, -2.0)
    assert (
        started().generate([GenerateRequest((1,), Sampling(max_tokens=1))])[0][0].choice_logprobs
        == ()
    )


@pytest.mark.parametrize("status", FAILURES)
def test_every_failure_can_be_had_of_every_method(status: str) -> None:
    engine = started(failures={"7 8": status, "poison": status})
    texts = engine.generate(
        [
            GenerateRequest((1,), Sampling(max_tokens=1)),
            GenerateRequest((6, 7, 8), Sampling(max_tokens=1, n=2)),
        ]
    )
    assert [[t.failure for t in sampled] for sampled in texts] == [[""], [status] * 2]
    by_text = [
        GenerateRequest((), Sampling(max_tokens=1), text="a poison"),
        GenerateRequest((), Sampling(max_tokens=1), messages=(("user", "poison"),)),
    ]
    assert [sampled[0].failure for sampled in engine.generate(by_text)] == [status] * 2
    requests = [PoolingRequest((7, 8), positions=(0,)), PoolingRequest((8, 7), positions=(0,))]
    values, logits = engine.classify(requests), engine.token_logits(requests)
    assert math.isnan(values[0].value)
    assert ([v.failure for v in values], [t.failure for t in logits]) == (
        [status, ""],
        [status, ""],
    )
    assert [e.failure for e in engine.embed([EmbedRequest("poison ivy"), EmbedRequest("ivy")])] == [
        status,
        "",
    ]
    assert values[0].detail == f"the engine was scripted to answer '7 8' with {status}"


def test_a_status_that_no_output_has_is_refused() -> None:
    with pytest.raises(
        ConfigError, match="has unparseable; an engine's output can fail with overlong, timeout"
    ):
        started(failures={"1": "unparseable"})


def test_cut_samples() -> None:
    requests = [
        GenerateRequest((1, 2), Sampling(max_tokens=9)),
        GenerateRequest((3,), Sampling(max_tokens=9)),
    ]
    ends = [
        [sampled[0].finish_reason for sampled in started(cut=cut).generate(requests)]
        for cut in (True, ["1 2"], False)
    ]
    assert ends == [["length", "length"], ["length", "stop"], ["stop", "stop"]]


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
        "from rmrl.inference.reward_engines import build_engine, EngineSpec\nengine ="
        f" build_engine(EngineSpec(path='x', runner='pooling', name='{fakes.REWARD_ENGINE}', dtype='f',"
        " max_model_len=9, max_num_seqs=1, max_num_batched_tokens=1, tensor_parallel_size=1,"
        " gpu_memory_utilization=0.5, kv_cache_bytes=0, device='cpu', threads=1,"
        " kwargs={'die_on_call': 2}))\nengine.start(); engine.classify([]); engine.classify([])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode
        == EXIT_CODE
    )
