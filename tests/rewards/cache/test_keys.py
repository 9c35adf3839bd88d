"""Keys: equal exactly where the number is."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from rmrl.errors import ConfigError
from rmrl.inference.reward_engine_base import (
    EmbedRequest,
    EngineSpec,
    GenerateRequest,
    PoolingRequest,
)
from rmrl.rewards.cache.keys import _canonical, checkpoint_identity, request_key, scorer_key
from rmrl.rewards.remote.spec import HTTPSpec
from rmrl.types import Sampling
from tests.support import fakes

ENGINE = EngineSpec(
    path="judge", runner="generate", name=fakes.REWARD_ENGINE, dtype="bfloat16", max_model_len=None, max_num_seqs=8, max_num_batched_tokens=512,
    tensor_parallel_size=1, gpu_memory_utilization=0.5, kv_cache_bytes=1, device="cpu", threads=1,
)  # fmt: skip
SERVER = HTTPSpec(
    url="http://judge:8000/v1",
    wire="openai",
    model="big",
    headers={"X-Team": "a", "Authorization": "Bearer one"},
)
GREEDY = Sampling(max_tokens=16, temperature=0.0)


def key(**changes: Any) -> str:
    return scorer_key(dataclasses.replace(ENGINE, **changes), code_hash="")


def checkpoint(folder: Path, sizes: dict[str, int], *, changed: str = "") -> Path:
    """A safetensors checkpoint with metadata; the tensor `changed` differs in its first bytes."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}', encoding="utf-8")
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, size in sizes.items():
        entries[name] = {
            "dtype": "U8",
            "shape": [size],
            "data_offsets": [len(body), len(body) + size],
        }
        body += (b"new!" if name == changed else b"old!") + bytes(size - 4)
    header = json.dumps(entries).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + body)
    return folder


def test_what_moves_the_number_moves_the_key() -> None:
    changes: list[dict[str, Any]] = [
        {}, {"path": "other"}, {"runner": "pooling"}, {"dtype": "float32"}, {"max_model_len": 512}, {"seed": 1}, {"kwargs": {"x": 1}},
        {"trust_remote_code": True}, {"batch_invariant": True},
    ]  # fmt: skip
    keys = [key(**each) for each in changes]
    assert len(set(keys)) == len(changes)
    assert scorer_key(ENGINE, code_hash="1") not in keys


def test_what_only_moves_the_speed_does_not() -> None:
    fast = key(max_num_seqs=64, max_num_batched_tokens=8192, tensor_parallel_size=4, gpu_memory_utilization=0.9, kv_cache_bytes=2**30,
               threads=8, pool="judges", replicas=3, device="cuda")  # fmt: skip
    assert fast == key()


def test_a_server_is_known_by_address_model_and_body_and_not_by_its_secrets() -> None:
    same = dataclasses.replace(
        SERVER,
        url="http://judge:8000/v1/",
        headers={"x-team": "a", "authorization": "Bearer two"},
        api_key_env="K",
        max_tries=1,
    )
    assert scorer_key(same, code_hash="") == scorer_key(SERVER, code_hash="")
    for changes in (
        {"model": "small"},
        {"headers": {"X-Team": "b"}},
        {"extra_body": {"top_k": 1}},
        {"url": "http://judge:8001/v1"},
    ):
        assert scorer_key(dataclasses.replace(SERVER, **changes), code_hash="") != scorer_key(
            SERVER, code_hash=""
        )


def test_a_checkpoint_is_known_by_its_content_wherever_it_lies(tmp_path: Path) -> None:
    original = checkpoint(tmp_path / "a", {"embed": 64, "head": 64})
    copy = shutil.copytree(original, tmp_path / "deep" / "copy", copy_function=shutil.copyfile)
    (copy / "README.md").write_text("notes", encoding="utf-8")
    (copy / "optimizer.pt").write_bytes(b"state")
    assert checkpoint_identity(str(copy)) == checkpoint_identity(str(original))
    assert key(name="vllm", path=str(copy)) == key(name="vllm", path=str(original))
    (copy / ".cache").mkdir()
    (copy / ".cache" / "model.json").write_text("{}", encoding="utf-8")
    assert checkpoint_identity(str(copy)) == checkpoint_identity(str(original))
    (copy / "tokenizer.json").write_text("{}", encoding="utf-8")
    assert checkpoint_identity(str(copy)) != checkpoint_identity(str(original))


def test_a_file_written_anew_is_read_anew(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "a", {"head": 64})
    before = checkpoint_identity(str(folder))
    (folder / "config.json").write_text('{"architectures": ["Other"]}', encoding="utf-8")
    assert checkpoint_identity(str(folder)) != before


@pytest.mark.parametrize("changed", ["embed", "middle", "small", "last"])
def test_in_a_large_file_a_change_of_any_tensor_is_seen(tmp_path: Path, changed: str) -> None:
    # 24 MiB: the small tensor in the middle lies outside the first and the last MiB
    sizes = {"embed": 8 * 2**20, "middle": 8 * 2**20, "small": 64, "last": 8 * 2**20}
    same, other = (
        checkpoint(tmp_path / "a", sizes),
        checkpoint(tmp_path / "b", sizes, changed=changed),
    )
    assert checkpoint_identity(str(other)) != checkpoint_identity(str(same))


def test_a_large_file_of_another_format_is_sampled(tmp_path: Path) -> None:
    for name, content in (
        ("a", bytes(24 * 2**20)),
        ("b", bytes(12 * 2**20) + b"\1" * 50_000 + bytes(12 * 2**20 - 50_000)),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pytorch_model.bin").write_bytes(content)
    assert checkpoint_identity(str(tmp_path / "a")) != checkpoint_identity(str(tmp_path / "b"))


def test_a_hub_snapshot_is_known_by_its_revision(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "models--org--rm" / "snapshots" / "abc123", {"head": 64})
    assert checkpoint_identity(str(folder)) == "models--org--rm@abc123"


def test_a_checkpoint_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a folder"):
        scorer_key(
            dataclasses.replace(ENGINE, name="vllm", path=str(tmp_path / "gone")), code_hash=""
        )


def test_requests_differ_by_every_part() -> None:
    tokens = tuple(range(100))
    different = [
        ("s", "generate", GenerateRequest(tokens, GREEDY)),
        ("t", "generate", GenerateRequest(tokens, GREEDY)),
        ("s", "generate", GenerateRequest((*tokens[:-1], 7), GREEDY)),
        ("s", "generate", GenerateRequest(tokens, dataclasses.replace(GREEDY, max_tokens=17))),
        ("s", "generate", GenerateRequest(tokens, GREEDY, choice_tokens=(1, 2))),
        ("s", "generate", GenerateRequest((), GREEDY, messages=(("user", "a"),))),
        ("s", "generate", GenerateRequest((), GREEDY, messages=(("user", "b"),))),
        ("s", "classify", PoolingRequest(tokens)),
        ("s", "token_logits", PoolingRequest(tokens)),
        ("s", "classify", PoolingRequest(tokens, token_type_ids=(0,) * 100)),
        ("s", "embed", EmbedRequest("\ud800 half a pair")),
    ]
    keys = [request_key(*parts) for parts in different]
    assert len(set(keys)) == len(different)
    assert {len(each) for each in keys} == {32}
    again = GenerateRequest(tuple(range(100)), Sampling(max_tokens=16, temperature=0.0))
    assert request_key("s", "generate", again) == keys[0]


def test_the_keys_of_a_file_written_today_are_found_tomorrow() -> None:
    # sha256 of ["s","embed",{"":"EmbedRequest","text":"a"}].
    # A change of this number forgets every cache there is: raise keys._VERSION with it.
    assert request_key("s", "embed", EmbedRequest("a")).hex().startswith("8d3bb1ba7be93f13")


def test_answers_read_from_rounded_logits_are_not_found() -> None:
    """Earlier versions read them so on engines of their own. The key beside the first is theirs."""
    request = GenerateRequest((1, 2), GREEDY, choice_tokens=(3, 4))
    old = hashlib.sha256(_canonical(["s", "generate", request])).digest()
    assert request_key("s", "generate", request) != old
    for same in (
        dataclasses.replace(request, choice_tokens=()),
        dataclasses.replace(request, token_ids=(), text="of a server"),
    ):
        assert (
            request_key("s", "generate", same)
            == hashlib.sha256(_canonical(["s", "generate", same])).digest()
        )


def test_where_a_request_is_served_is_no_part_of_its_key():
    request = GenerateRequest((1, 2), GREEDY, "t")
    beside = dataclasses.replace(request, prefix=7)
    assert request == beside
    assert request_key("s", "generate", request) == request_key("s", "generate", beside)
