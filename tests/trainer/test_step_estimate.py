"""Seconds of a step by its parts, on a card that computes 1e12 operations a second and reads 1e12
bytes a second."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.step_memory import checkpoint_7b
from rmrl.config.load import compose_config
from rmrl.config.schema import Config
from rmrl.errors import ConfigError
from rmrl.inference.reward_engine_base import EngineSpec
from rmrl.rewards.residency.plan import EnginePlan
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.trainer.step_estimate import (
    PARTS,
    REACHED,
    Load,
    Model,
    announced,
    estimate_line,
    step_estimate,
)
from rmrl.trainer.throughput import Card
from rmrl.types import Sampling

CARD = Card("a card", 1e12 / REACHED, 1e12)
BILLION = Model(parameters=10**9, kv_bytes=1000)
PARAMETERS = 7_615_616_512


def seconds(**changes: float) -> float:
    """Of an engine that writes 1,000 tokens for each of 64 samples, and reads nothing."""
    numbers = {"gpus": 1, "at_once": 64, "samples": 64, "read": 0, "written": 1000} | changes
    return Load(model=BILLION, **numbers).seconds(CARD)  # type: ignore[arg-type]


def test_decoding_is_bound_by_operations_memory_or_python() -> None:
    # 2 x 1e9 x 64 / 1e12 = 0.128 s a token
    assert seconds() == pytest.approx(128)
    # one sample: (2e9 bytes + 500 tokens x 1,000) / 1e12 = 0.0020005 s
    assert seconds(samples=1) == pytest.approx(2.0005)
    # on 8 GPUs that is 0.00025 s, less than 0.0014 + 0.0000235 for Python
    assert seconds(samples=1, gpus=8) == pytest.approx(1.4235)
    # 96 samples of which 64 fit: one and a half rounds
    assert seconds(samples=96) == pytest.approx(192)


def test_an_input_that_samples_share_is_read_once() -> None:
    # 2e9 operations x 64 samples x 100 tokens / 1e12 = 12.8 s, an eighth of it where 8 share
    assert seconds(read=100, written=0) == pytest.approx(12.8)
    assert seconds(read=100, written=1) == pytest.approx(12.8)
    assert seconds(read=100, written=0, shared=8) == pytest.approx(1.6)


def test_the_sizes_of_a_model_come_from_its_headers(tmp_path: Path) -> None:
    model = Model.of(str(checkpoint_7b(tmp_path / "7b")))
    # keys and values x 2 bytes x 28 layers x 4 heads x 128
    assert model == Model(parameters=PARAMETERS, kv_bytes=57_344)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """64 prompts with 8 responses each: 512 rows of 4,096 tokens on 8 GPUs."""
    return compose_config(
        [
            f"actor_rollout_ref.model.path={checkpoint_7b(tmp_path / '7b')}",
            "actor_rollout_ref.model.enable_gradient_checkpointing=true",
            "actor_rollout_ref.rollout.n=8",
            "actor_rollout_ref.actor.ppo_mini_batch_size=64",
            "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=8192",
            "actor_rollout_ref.actor.use_kl_loss=false",
            "data.train_batch_size=64",
            "data.max_prompt_length=1024",
            "data.max_response_length=3072",
            "trainer.n_gpus_per_node=8",
        ]
    )


def judge(config: Config, pool: str = "") -> EnginePlan:
    spec = EngineSpec(
        path=str(config.actor_rollout_ref.model.path), runner="generate", name="vllm", pool=pool,
        device="cuda", threads=1, dtype="bfloat16", max_model_len=4097, max_num_seqs=128,
        max_num_batched_tokens=8192, tensor_parallel_size=1, gpu_memory_utilization=0.5,
        kv_cache_bytes=0,
    )  # fmt: skip
    return EnginePlan(
        spec=spec, rewards=("good",), residency="on_demand", put_away="sleep1",
        load_timeout_s=60.0, replicas=8,
    )  # fmt: skip


def test_the_parts_of_a_step(config: Config) -> None:
    sampling = Sampling(max_tokens=1, n=2)
    spec = RewardSpec(name="good", kind="generative", weight=1.0, sampling=sampling)
    found = step_estimate(config, [judge(config)], [spec], card=CARD, transport="file")
    assert tuple(found) == PARTS
    tokens = 512 * 4096
    # (6 + 2 + 8600 / 8192) operations a parameter and token, on 8 cards
    assert found["update"] == pytest.approx(
        (8 + 8600 / 8192) * PARAMETERS * tokens / 8e12, rel=1e-6
    )
    # both votes share the input of 4,096 tokens, and one token is no decoding
    assert found["score"] == pytest.approx(2 * PARAMETERS * tokens / 8e12)
    assert found["logprobs"] == 0  # one update, and nothing else reads them
    # 64 samples an engine, bound by operations; 64 / 8 prompts of 1,024 tokens
    assert found["generate"] == pytest.approx(
        2 * PARAMETERS * (64 * 3072 + 64 / 8 * 1024) / 1e12, rel=1e-6
    )
    assert found["publish"] == pytest.approx(2 * PARAMETERS / 1.6e9)
    # rollout and judge come back over a link of 35e9 bytes a second
    assert found["moves"] == pytest.approx(4 * PARAMETERS / 35e9)


def test_further_passes_and_pools(config: Config) -> None:
    actor = config.actor_rollout_ref.actor
    actor.use_kl_loss = True
    actor.ppo_mini_batch_size = 32
    found = step_estimate(config, [judge(config, "judges")], [], card=CARD, transport="ipc")
    # old log-probabilities and those of the reference
    assert found["logprobs"] == pytest.approx(4 * PARAMETERS * 512 * 4096 / 8e12)
    assert found["publish"] == pytest.approx(2 * PARAMETERS / 300e9)
    assert found["moves"] == pytest.approx(2 * PARAMETERS / 35e9)  # the judge stays in its pool


def test_the_line_names_every_part() -> None:
    line = estimate_line(dict.fromkeys(PARTS, 2.0), card=CARD, gpus=8)
    assert line.startswith("a step takes about 12 s on 8 x a card if every response has its full")
    assert "generate 2, score 2, logprobs 2, update 2, publish 2, moves 2." in line


def test_a_mixture_of_experts_and_what_is_not_here_have_no_estimate(
    config: Config, tmp_path: Path
) -> None:
    def estimated() -> dict[str, float]:
        return step_estimate(config, [], [], card=CARD, transport="file")

    assert estimated()
    assert announced(config, [], [], gpu="NVIDIA H200", transport="file")
    assert announced(config, [], [], gpu="another card", transport="file") == ""
    file = Path(str(config.actor_rollout_ref.model.path)) / "config.json"
    shape = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**shape, "num_experts": 8}), encoding="utf-8")
    with pytest.raises(ConfigError, match="use a part of the parameters"):
        estimated()
    with pytest.raises(ConfigError, match="use a part of the parameters"):
        Model.of(str(file.parent))
    config.actor_rollout_ref.model.path = str(tmp_path / "gone")
    with pytest.raises(ConfigError):
        estimated()
    assert announced(config, [], [], gpu="NVIDIA H200", transport="file") == ""
