import json
from pathlib import Path
from typing import Any

import pytest

from rmrl.inference.settings import EngineSettings
from rmrl.inference.vllm.arguments import (
    can_widen_head,
    engine_arguments,
    with_known_class,
    with_wide_head,
)
from rmrl.inference.vllm.compat import known_arguments

GIVEN: dict[str, Any] = {
    "path": "m", "device": "cpu", "threads": 1, "dtype": "bfloat16", "max_model_len": None,
    "max_num_seqs": 8, "max_num_batched_tokens": 2048, "tensor_parallel_size": 1, "gpu_memory_utilization": 0.4,
    "kv_cache_bytes": 1000, "trust_remote_code": False, "seed": 3,
}  # fmt: skip


def arguments(*, chunks: bool = False, **changed: Any) -> dict[str, Any]:
    settings = EngineSettings(**(GIVEN | changed))
    return engine_arguments(settings, runner="generate", max_model_len=4096, chunks=chunks)


def test_cpu_has_its_own_worker_and_cache_size() -> None:
    made = arguments()
    assert made["worker_cls"] == "rmrl.inference.vllm.cpu_worker.SleepingCPUWorker"
    assert made["kv_cache_memory_bytes"] == 1000
    assert made["enforce_eager"] is True
    assert made["tokenizer"] == "m"
    assert "gpu_memory_utilization" not in made


def test_cuda_sleeps_by_itself() -> None:
    made = arguments(device="cuda")
    assert made["enable_sleep_mode"] is True
    assert made["gpu_memory_utilization"] == 0.4
    assert made["worker_cls"] == "rmrl.inference.vllm.gpu_worker.SleepingGPUWorker"
    assert not {"kv_cache_memory_bytes", "enforce_eager"} & made.keys()


def test_a_step_holds_a_whole_sequence() -> None:
    assert arguments()["max_num_batched_tokens"] == 4096
    assert arguments(max_num_batched_tokens=9000)["max_num_batched_tokens"] == 9000


def test_a_step_holds_a_part_where_prompts_may_be_cut() -> None:
    """vLLM profiles such a step: 262,144 tokens take tens of GiB. It refuses steps with fewer tokens
    than sequences."""
    cut = arguments(chunks=True)
    assert (cut["max_num_batched_tokens"], cut["max_model_len"]) == (2048, 4096)
    assert arguments(chunks=True, max_num_seqs=4000)["max_num_batched_tokens"] == 4000


def test_without_a_share_vllm_takes_its_own() -> None:
    assert "gpu_memory_utilization" not in arguments(device="cuda", gpu_memory_utilization=None)


def test_several_devices_need_several_processes() -> None:
    assert arguments()["distributed_executor_backend"] == "uni"
    assert arguments(tensor_parallel_size=2)["distributed_executor_backend"] == "mp"


def test_kwargs_win() -> None:
    assert arguments(kwargs={"enforce_eager": False, "block_size": 32}) | {} == arguments() | {
        "enforce_eager": False,
        "block_size": 32,
    }


def test_an_older_vllm_gets_no_argument_that_it_does_not_know() -> None:
    made = arguments(device="cuda")
    assert made["sleep_mode_offload_cudagraph"] is True
    assert known_arguments(made, made.keys()) == made
    older = known_arguments(made, {"model"})
    assert made.keys() - older.keys() == {"sleep_mode_offload_cudagraph"}
    # A mistyped name of a user's own reaches vLLM, which refuses it.
    assert known_arguments({"typo": 1}, {"model"}) == {"typo": 1}


@pytest.mark.parametrize(
    ("changed", "config", "widens"),
    [
        ({}, {}, True),
        ({"dtype": "float16"}, {}, True),
        ({"dtype": "float32"}, {}, False),
        ({"kwargs": {"quantization": "fp8"}}, {}, False),
        ({}, {"quantization_config": {"bits": 4}}, False),
    ],
)
def test_a_head_in_half_precision_is_widened_unless_it_is_quantized(
    changed: dict[str, Any], config: dict[str, Any], widens: bool, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    settings = EngineSettings(**(GIVEN | {"path": str(tmp_path)} | changed))
    assert can_widen_head(settings) is widens
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    assert can_widen_head(settings) is False


def test_an_override_of_the_head_wins() -> None:
    def callback(config: Any) -> Any:
        return config

    wide = {"head_dtype": "float32"}
    assert with_wide_head({"seed": 3}) == {"seed": 3, "hf_overrides": wide}
    theta = {"rope_theta": 5}
    assert with_wide_head({"hf_overrides": theta}) == {"hf_overrides": {**wide, **theta}}
    model = {"hf_overrides": {"head_dtype": "model"}}
    assert with_wide_head(model) == model
    assert with_wide_head({"hf_overrides": callback}) == {"hf_overrides": callback}


@pytest.mark.parametrize(
    ("name", "language_model"),
    [
        ("Gemma3TextForSequenceClassification", "Gemma3ForCausalLM"),
        ("Qwen3_5TextForSequenceClassification", "Qwen3_5ForCausalLM"),
        ("LlamaForSequenceClassification", ""),
    ],
)
def test_a_classifier_has_the_name_that_vllm_knows(
    tmp_path: Path, name: str, language_model: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": [name]}))
    plain: dict[str, Any] = {"hf_overrides": {"rope_theta": 1.0}}
    expected = plain
    if language_model:
        overrides = {"architectures": [language_model], "rope_theta": 1.0}
        expected = {"convert": "classify", "hf_overrides": overrides}
    assert with_known_class(plain, str(tmp_path)) == expected
