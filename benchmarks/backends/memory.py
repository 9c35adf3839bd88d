"""Peak memory of each process while it loads, publishes and saves a model, above what it held
before.

The measured model is random; its embedding is a small part of it, so that layouts that cut layers
and those that cut matrices share it alike.
"""

from __future__ import annotations

import multiprocessing
import socket
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import torch

from benchmarks.backends.layouts import LAYOUTS, Layout
from rmrl.backends import TRAIN_ENGINES
from rmrl.backends.base import ProcessSettings, TrainSettings
from rmrl.config.schema import ModelConfig
from rmrl.types import Ragged, TrainBatch

DEADLINE_S = 900.0
SHAPE = {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 128,
         "num_hidden_layers": 8, "vocab_size": 8192, "tie_word_embeddings": True}  # fmt: skip
"""About 136 million parameters, 518 MiB in float32."""
_RESET_PEAK = "5"
"""Written to /proc/self/clear_refs: the kernel forgets the high-water mark of resident memory."""


def write_model(folder: Path) -> int:
    """A random Llama; returns the bytes of its parameters in float32."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SHAPE))
    model.save_pretrained(folder)
    return sum(parameter.numel() for parameter in model.parameters()) * 4


def measure() -> dict[str, Any]:
    """Every layout, in processes of its own."""
    with tempfile.TemporaryDirectory() as name:
        model_bytes = write_model(Path(name) / "model")
        found = {layout.name: _of_group(layout, Path(name)) for layout in LAYOUTS}
    return {"model_bytes": model_bytes, "layouts": found}


def _of_group(layout: Layout, folder: Path) -> list[dict[str, int]]:
    """Peaks by rank."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    context = multiprocessing.get_context("spawn")
    answers: Any = context.SimpleQueue()
    members = [
        context.Process(
            target=_member,
            args=(
                layout,
                folder,
                ProcessSettings(
                    rank=rank,
                    world_size=layout.processes,
                    init_method=address,
                    threads=1,
                    timeout_s=300,
                ),
                answers,
            ),
            daemon=True,
        )
        for rank in range(layout.processes)
    ]
    try:
        for member in members:
            member.start()
        end = time.monotonic() + DEADLINE_S
        for member in members:
            member.join(max(0.0, end - time.monotonic()))
        if any(member.exitcode != 0 for member in members):
            raise RuntimeError(
                f"{layout.name}: exit codes {[member.exitcode for member in members]}"
            )
    finally:
        for member in members:
            member.kill()
    by_rank = dict(answers.get() for _ in members)
    return [by_rank[rank] for rank in range(layout.processes)]


def _member(layout: Layout, folder: Path, process: ProcessSettings, answers: Any) -> None:
    settings = TrainSettings(
        model=ModelConfig(path=str(folder / "model"), enable_gradient_checkpointing=False),
        actor=layout.actor(),
        total_steps=10,
        max_response_length=8,
    )
    build = TRAIN_ENGINES[layout.strategy]  # imported before the first measurement
    _warm_up(layout)
    peaks: dict[str, int] = {}
    engine = measured("load", peaks, lambda: build(settings, process))
    batch = _batch()
    engine.logprobs(batch)
    measured("step", peaks, lambda: engine.update([batch]))
    peaks["held"] = psutil.Process().memory_info().rss
    measured("publish", peaks, lambda: engine.export_weights(str(folder / "published"), "bfloat16"))
    measured("save", peaks, lambda: engine.save(str(folder / layout.name.replace(" ", "-"))))
    measured("resume", peaks, lambda: engine.load(str(folder / layout.name.replace(" ", "-"))))
    answers.put((process.rank, peaks))


def _warm_up(layout: Layout) -> None:
    """Libraries take their own memory now and not in the first measurement."""
    import transformers  # noqa: F401

    if layout.strategy == "megatron":
        import rmrl.backends.megatron.engine  # noqa: F401


def measured(name: str, peaks: dict[str, int], work: Callable[[], Any]) -> Any:
    """Run it; `peaks[name]` is the highest resident memory meanwhile, above that before."""
    clear = Path("/proc/self/clear_refs")
    clear.write_text(_RESET_PEAK)
    before = psutil.Process().memory_info().rss
    result = work()
    peaks[name] = _high_water() - before
    return result


def _high_water() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def _batch() -> TrainBatch:
    rows = [list(range(3, 35))] * 4
    return TrainBatch(
        tokens=Ragged.of(rows, "int64"),
        response_mask=Ragged.of([[1.0] * 8] * 4, "float32"),
        advantages=Ragged.of([[1.0] * 8] * 4, "float32"),
    )


def table(found: Mapping[str, Any]) -> str:
    """One line per layout and process, in MiB."""
    model = found["model_bytes"]
    lines = [
        f"whole model in float32: {model / 2**20:.0f} MiB",
        "layout, rank: share | load | publish (bfloat16) | save | resume, MiB",
    ]
    holds = {layout.name: layout.holds for layout in LAYOUTS}
    for name, ranks in found["layouts"].items():
        for rank, peaks in enumerate(ranks):
            numbers = " | ".join(
                f"{peaks[phase] / 2**20:.0f}" for phase in ("load", "publish", "save", "resume")
            )
            lines.append(f"{name}, {rank}: {model / holds[name] / 2**20:.0f} | {numbers}")
    return "\n".join(lines)
