"""What engine.dtype=auto means for which checkpoint on which device, and where batches may be
invariant."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from rmrl.errors import ConfigError
from rmrl.inference import precision
from rmrl.inference.precision import SMALL_PARAMETERS, check_batch_invariant, resolve_dtype

BYTES = {"F32": 4, "F16": 2, "BF16": 2}


def checkpoint(folder: Path, *, dtype: str, parameters: int = 8) -> str:
    """A checkpoint whose header promises `parameters` numbers; the file is sparse."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text("{}", encoding="utf-8")
    end = parameters * BYTES[dtype]
    header = json.dumps(
        {"w": {"dtype": dtype, "shape": [parameters], "data_offsets": [0, end]}}
    ).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + end)
    return str(folder)


@pytest.fixture(autouse=True, params=["with bfloat16", "without bfloat16"])
def processor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Two machines, on which every test here holds."""
    monkeypatch.setattr(precision, "computes_bfloat16", lambda: request.param == "with bfloat16")
    return request.param


def resolved(
    path: str, *, given: str = "auto", runner: str = "generate", device: str = "cpu"
) -> str:
    return resolve_dtype(
        given, path=path, runner=runner, device=device, where="reward.specs.r.engine.dtype"
    )


@pytest.mark.parametrize(
    ("stored", "runner", "device", "dtype"),
    [
        ("F32", "generate", "cpu", "float32"),
        ("F32", "generate", "cuda", "float32"),
        ("BF16", "generate", "cuda", "bfloat16"),
        ("F16", "generate", "cuda", "float16"),
        ("F16", "generate", "cpu", "float32"),
        ("BF16", "pooling", "cpu", "float32"),
        ("BF16", "token_pooling", "cpu", "float32"),
        ("BF16", "embed", "cpu", "float32"),
        ("BF16", "pooling", "cuda", "bfloat16"),
        ("F32", "pooling", "cuda", "float32"),
        ("F16", "embed", "cuda", "float16"),
    ],
)
def test_auto_is_the_checkpoints_own_type_and_float32_for_small_scorers_on_cpu(
    tmp_path: Path, stored: str, runner: str, device: str, dtype: str
) -> None:
    path = checkpoint(tmp_path / "m", dtype=stored)
    assert resolved(path, runner=runner, device=device) == dtype


@pytest.mark.parametrize(
    ("parameters", "dtype"),
    [(8, "float32"), (SMALL_PARAMETERS, "float32"), (SMALL_PARAMETERS + 1, "bfloat16")],
)
def test_a_small_judge_is_float32_where_the_processor_has_no_bfloat16(
    tmp_path: Path, processor: str, parameters: int, dtype: str
) -> None:
    path = checkpoint(tmp_path / "m", dtype="BF16", parameters=parameters)
    assert resolved(path) == ("bfloat16" if processor == "with bfloat16" else dtype)
    assert resolved(path, given="bfloat16") == resolved(path, device="cuda") == "bfloat16"


def test_small_ends_at_a_number_of_parameters(tmp_path: Path) -> None:
    small = checkpoint(tmp_path / "small", dtype="BF16", parameters=SMALL_PARAMETERS)
    large = checkpoint(tmp_path / "large", dtype="BF16", parameters=SMALL_PARAMETERS + 1)
    assert [resolved(path, runner="pooling") for path in (small, large)] == ["float32", "bfloat16"]


def test_a_type_that_was_typed_out_stays(tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "m", dtype="F32")
    names = ("bfloat16", "bf16", "float16", "half", "float32", "fp32")
    types = [resolved(path, given=name, runner="pooling") for name in names]
    assert types == ["bfloat16", "bfloat16", "float16", "float16", "float32", "float32"]


def test_an_unknown_type_is_refused_with_the_key(tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "m", dtype="F32")
    with pytest.raises(
        ConfigError,
        match=(
            r"reward\.specs\.r\.engine\.dtype=bfloat61: not a type to compute in; did you mean"
            r" 'bfloat16'"
        ),
    ):
        resolved(path, given="bfloat61")


@pytest.mark.parametrize(
    ("name", "device"),
    [("vllm", "cuda"), ("hf", "cpu"), ("hf", "cuda"), ("sentence_transformers", "cpu")],
)
def test_batch_invariance_is_taken_where_the_engine_has_it(name: str, device: str) -> None:
    check_batch_invariant(name, device=device, where="reward.engine.batch_invariant")


@pytest.mark.parametrize(
    ("name", "device", "says"),
    [
        ("vllm", "cpu", "this engine runs on CPU; leave it out and use engine.dtype=float32"),
        ("sglang", "cuda", "use engine.name=vllm"),
    ],
)
def test_batch_invariance_is_refused_elsewhere(name: str, device: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_batch_invariant(name, device=device, where="reward.engine.batch_invariant")
    (problem,) = caught.value.problems
    assert problem.startswith("reward.engine.batch_invariant=True")
    assert says in problem
