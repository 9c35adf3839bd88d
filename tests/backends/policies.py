"""A tiny policy, a batch and settings for engine tests; and groups of processes that run a function
and end by a deadline."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rmrl.backends.base import ProcessSettings, TrainSettings
from rmrl.backends.fsdp.engine import FSDPEngine
from rmrl.backends.micro_batches import split_by_length
from rmrl.config.schema import ActorConfig, CriticConfig, FSDPConfig, ModelConfig, OptimConfig
from rmrl.types import Ragged, TrainBatch
from tests.forks.servers import PROGRAMS, start_fresh
from tests.patience import PATIENCE_S

ONE_PROCESS = ProcessSettings(threads=1, timeout_s=60)
VOCABULARY = 512
TEMPERATURE = 0.9


def write_policy(folder: Path) -> Path:
    """A random Llama (tied embeddings) with a word-level tokenizer."""
    from tokenizers import Tokenizer, models
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    shape = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
    }
    LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            num_hidden_layers=3,
            tie_word_embeddings=True,
            initializer_range=0.1,
            **shape,
        )
    ).save_pretrained(folder)
    words = Tokenizer(models.WordLevel({"<pad>": 0, "<s>": 1, "</s>": 2}, unk_token="<pad>"))
    PreTrainedTokenizerFast(
        tokenizer_object=words, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    ).save_pretrained(folder)
    return folder


def engine(settings: TrainSettings) -> FSDPEngine:
    """An engine in this process alone."""
    return FSDPEngine(settings=settings, process=ONE_PROCESS)


def make_batch(rows: int, *, seed: int, streams: bool = True) -> TrainBatch:
    """Rows of 5 to 24 tokens with 2 to 9 of them response; some response tokens do not count.
    `streams`: old and reference logprobs."""
    rng = np.random.default_rng(seed)
    responses = rng.integers(2, 10, rows)
    tokens = [rng.integers(3, VOCABULARY, n + rng.integers(3, 15)) for n in responses]
    mask = [np.concatenate([np.ones(n - 1), [float(rng.random() < 0.7)]]) for n in responses]
    noise = {
        name: Ragged.of([-6.0 + 0.3 * rng.standard_normal(n) for n in responses], np.float32)
        for name in ("old_logprobs", "ref_logprobs")
    }
    return TrainBatch(
        tokens=Ragged.of(tokens, np.int64),
        response_mask=Ragged.of(mask, np.float32),
        advantages=Ragged.of([np.full(n, rng.standard_normal()) for n in responses], np.float32),
        **(noise if streams else {}),
    )


def make_critic_batch(rows: int, *, seed: int) -> TrainBatch:
    """The rows of `make_batch` with old values and returns in place of the policy's streams."""
    batch, rng = make_batch(rows, seed=seed, streams=False), np.random.default_rng(1000 + seed)
    lengths = batch.response_mask.lengths
    return TrainBatch(
        tokens=batch.tokens,
        response_mask=batch.response_mask,
        values=Ragged.of([0.2 * rng.standard_normal(n) for n in lengths], np.float32),
        returns=Ragged.of([np.full(n, rng.standard_normal()) for n in lengths], np.float32),
    )


def make_critic_settings(
    checkpoint: Path, *, model: dict[str, Any] | None = None, **critic: Any
) -> TrainSettings:
    """float32 training of a critic, with a value clip that some tokens reach."""
    critic = {
        "strategy": "fsdp2", "fsdp_config": FSDPConfig(param_dtype=None), "cliprange_value": 0.2, "ppo_epochs": 1,
        "optim": OptimConfig(lr=2e-3, lr_scheduler_type="cosine", lr_warmup_steps=2), **critic,
    }  # fmt: skip
    return TrainSettings(
        model=ModelConfig(path=str(checkpoint), **(model or {})),
        actor=ActorConfig(),
        critic=CriticConfig(**critic),
        role="critic",
        total_steps=20,
        max_response_length=10,
    )


def make_settings(
    policy: Path,
    *,
    fsdp: FSDPConfig | None = None,
    role: str = "actor",
    model: dict[str, Any] | None = None,
    **actor: Any,
) -> TrainSettings:
    """float32 training with every term of the loss switched on; `model`: entries of ModelConfig."""
    actor = {
        "use_kl_loss": True, "kl_loss_coef": 0.1, "entropy_coeff": 0.01,
        "optim": OptimConfig(lr=2e-3, lr_scheduler_type="cosine", lr_warmup_steps=2), **actor,
    }  # fmt: skip
    return TrainSettings(
        model=ModelConfig(path=str(policy), **(model or {})),
        actor=ActorConfig(fsdp_config=fsdp or FSDPConfig(param_dtype=None), **actor),
        role=role,
        temperature=TEMPERATURE,
        total_steps=20,
        max_response_length=10,
    )


def share(batch: TrainBatch, process: ProcessSettings) -> TrainBatch:
    """This process's rows."""
    return batch.select(split_by_length(batch.tokens.lengths, process.world_size)[process.rank])


def run_group(
    job: Callable[..., Any],
    world_size: int,
    folder: Path,
    *arguments: Any,
    deadline_s: float = 900.0,
    fresh: bool = False,
) -> Any:
    """Run `job(process, *arguments)` in `world_size` processes and return rank 0's result (through
    JSON). As soon as one fails, so does the group. `fresh`: processes that have imported nothing,
    as a user's."""
    meeting = folder / f"{job.__name__}-{uuid.uuid4().hex}"
    result = meeting.with_suffix(".json")
    start = start_fresh if fresh else PROGRAMS.start
    members: list[BaseProcess] = []
    try:
        for rank in range(world_size):
            process = ProcessSettings(
                rank=rank,
                world_size=world_size,
                init_method=f"file://{meeting}",
                threads=1,
                timeout_s=600,
            )
            members.append(start(_member, job, process, result, arguments))
        end = time.monotonic() + deadline_s
        while not any(member.exitcode for member in members) and time.monotonic() < end:
            alive = [member.sentinel for member in members if member.exitcode is None]
            if not alive:
                break
            wait(alive, timeout=PATIENCE_S)
        assert [member.exitcode for member in members] == [0] * world_size
    finally:
        for member in members:
            member.kill()
    return json.loads(result.read_text())


def _member(
    job: Callable[..., Any], process: ProcessSettings, result: Path, arguments: tuple[Any, ...]
) -> None:
    value = job(process, *arguments)
    if process.rank == 0:
        result.write_text(json.dumps(value))
