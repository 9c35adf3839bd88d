"""rmrl's sender with the weight transfer of each release of vLLM, by its own files.

Two training processes on gloo gather sharded weights and send them by CUDA IPC; two receiving
engines are processes of their own. Device memory is shared memory (tests/vllm_sources.py), all else
is vLLM's code and near_ends. The files are those of the installed vLLM, and in the nightly tests those of
every release with a transfer that scripts/vllm_contract.py compares.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version

from rmrl.inference.vllm import compat
from rmrl.inference.weights.sender import TransferLink, WeightSender, source_problem
from rmrl.ports import HeldPort
from tests import vllm_sources
from tests.patience import PATIENCE_S
from tests.scripts import load_script

ROOT = Path(__file__).resolve().parents[4]
RANKS = 2
BUFFER_BYTES = 4096
"""Holds one tensor of 1000 numbers, not two."""
contract = load_script(ROOT / "scripts" / "vllm_contract.py")
RELEASES = [each for each in contract.RELEASES if Version(each) >= compat.TRANSFER_SINCE]


def installed_sources() -> Path | None:
    spec = importlib.util.find_spec("vllm")
    return None if spec is None or spec.origin is None else Path(spec.origin).parents[1]


@pytest.fixture(
    scope="module",
    params=["installed", *(pytest.param(each, marks=pytest.mark.nightly) for each in RELEASES)],
)
def sources(request: pytest.FixtureRequest) -> Path:
    if request.param == "installed":
        folder = installed_sources()
        if folder is None:
            pytest.skip("vLLM is not installed")
        return folder
    try:
        return contract.sources(request.param, contract.CACHE)
    except contract.Unavailable as reason:
        pytest.skip(f"the sources of vLLM {request.param} cannot be had: {reason}")


# --- the four processes


class Weights:
    """A rank's shards of a model whose head is tied to its embedding; gathered tensor by tensor."""

    def __init__(self, rank: int, *, dies_at: str | None = None) -> None:
        self.rank, self.dies_at, self.step = rank, dies_at, 0.0
        model = torch.nn.ModuleDict(
            {
                "embedding": torch.nn.Embedding(100, 10),
                "layer": torch.nn.Linear(10, 10),
                "head": torch.nn.Linear(10, 100, bias=False),
            }
        )
        model["head"].weight = model["embedding"].weight
        self.names = {name: tuple(each.shape) for name, each in model.named_parameters()}

    def manifest(self, dtype: str) -> list[tuple[str, torch.dtype, tuple[int, ...]]]:
        return [(name, getattr(torch, dtype), shape) for name, shape in self.names.items()]

    def weights(self, dtype: str) -> Iterator[tuple[str, torch.Tensor]]:
        for number, (name, shape) in enumerate(self.names.items()):
            if name == self.dies_at:
                os._exit(1)
            whole = full(number, shape, self.step).to(getattr(torch, dtype))
            shard = whole.chunk(RANKS)[self.rank].contiguous()
            parts = [torch.empty_like(shard) for _ in range(RANKS)]
            torch.distributed.all_gather(parts, shard)
            yield name, torch.cat(parts)


def full(number: int, shape: tuple[int, ...], step: float) -> torch.Tensor:
    """Values of a tensor, which tell it and the step."""
    return torch.arange(float(torch.Size(shape).numel())).reshape(shape) + 1000 * number + step


class PipeClient:
    """Calls the engines, as EngineClient does, through pipes. The update goes on without a dead
    one."""

    def __init__(self, pipes: list[Connection]) -> None:
        self.pipes, self.dead, self.version = pipes, set[int](), 0

    @property
    def complete(self) -> bool:
        return not self.dead

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        self._all("init", init_info)

    def start_weight_update(self) -> None:
        self._all("start")

    def update_weights(self, update_info: Any) -> None:
        self._all("update", update_info)

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self._all("finish")

    def _all(self, *call: Any) -> None:
        for number, pipe in enumerate(self.pipes):
            if number in self.dead:
                continue
            try:
                pipe.send(call)
                assert pipe.poll(PATIENCE_S)
                assert pipe.recv() == "done"
            except (EOFError, ConnectionError):
                self.dead.add(number)


def engine(sources: Path, device: int, pipe: Connection, dies_at: int | None) -> None:
    """Serve a receiving engine on `device`; it dies at its update number `dies_at`."""
    calls = vllm_sources.install(sources, device=device)
    model = vllm_sources.Received()
    made = vllm_sources.receiver(device, model)
    updates = 0
    while True:
        method, *arguments = pipe.recv()
        if method == "report":
            values = {name: each.tolist() for name, each in model.tensors.items()}
            pipe.send((calls, model.names, values))
            return
        if method == "init":
            made.init_transfer_engine(made.parse_init_info(*arguments))
        elif method == "start":
            made.start_weight_update()
        elif method == "update":
            updates += 1
            if updates == dies_at:
                os._exit(1)
            made.update_weights(*arguments)
        else:
            made.finish_weight_update()
        pipe.send("done")


@dataclass(frozen=True)
class Plan:
    """Versions to send, each to the engines of these numbers."""

    sends: tuple[tuple[int, ...], ...]
    rank_dies_at: str | None = None


def trainer(
    sources: Path, rank: int, port: int, plan: Plan, pipes: list[Connection], answer: Connection
) -> None:
    """Send as one training process, and answer (complete, bytes) of each version or the error."""
    vllm_sources.install(sources, device=rank)
    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS
    )
    weights = Weights(rank, dies_at=plan.rank_dies_at if rank else None)
    found: list[tuple[bool, int]] = []
    try:
        for version, engines in enumerate(plan.sends, start=1):
            client = PipeClient([pipes[number] for number in engines] if rank == 0 else [])
            options = {"packed": True, "packed_buffer_size_bytes": BUFFER_BYTES}
            link = TransferLink(
                transport="ipc", rank=rank, client=client, dtype="float32", options=options
            )
            sender = WeightSender(weights, link)
            weights.step = float(version)
            sent = sender.send(version)
            found.append((sent.complete, sent.bytes))
            sender.close()
    except RuntimeError as error:
        answer.send(f"{type(error).__name__}: {error}")
        return
    answer.send(found)


@dataclass(frozen=True)
class Outcome:
    """Reports of the trainers (None: died) and of the engines (None: died)."""

    trainers: list[Any]
    engines: list[Any]


def exchange(
    sources: Path, plan: Plan, *, devices: tuple[int, ...], dies_at: int | None
) -> Outcome:
    """Run two trainers and an engine on each of `devices`; engine 1 dies at its update `dies_at`."""
    context = multiprocessing.get_context("spawn")
    port = HeldPort()
    near_ends: list[Connection] = []
    processes: list[Any] = []
    far_ends: list[Connection] = []
    for number, device in enumerate(devices):
        near, far = context.Pipe()
        arguments = (sources, device, far, dies_at if number == 1 else None)
        processes.append(context.Process(target=engine, args=arguments, daemon=True))
        near_ends.append(near)
        far_ends.append(far)
    for rank in range(RANKS):
        near, far = context.Pipe()
        arguments = (sources, rank, port.number, plan, near_ends if rank == 0 else [], far)
        processes.append(context.Process(target=trainer, args=arguments, daemon=True))
        far_ends.append(far)
        near_ends.append(near)
    try:
        for process in processes:
            process.start()
        for pipe in far_ends:
            pipe.close()
        trainers = [answered(pipe) for pipe in near_ends[len(devices) :]]
        return Outcome(trainers, [report(pipe) for pipe in near_ends[: len(devices)]])
    finally:
        port.close()
        for process in processes:
            process.kill()
            process.join(PATIENCE_S)


def answered(pipe: Connection) -> Any:
    """What a process answers; None: it died."""
    assert pipe.poll(10 * PATIENCE_S), "no answer"
    try:
        return pipe.recv()
    except (EOFError, ConnectionError):
        return None


def report(pipe: Connection) -> Any:
    try:
        pipe.send(("report",))
    except (BrokenPipeError, ConnectionError):
        return None
    return answered(pipe)


# --- tests


NAMES = ["embedding.weight", "layer.weight", "layer.bias"]
"""The head is tied to the embedding: it travels once."""
BYTES = 4 * (1000 + 100 + 10)


def is_version(report: Any, step: float) -> bool:
    """Whether an engine holds the values of that step, in their shapes."""
    _, _, tensors = report
    expected = {
        name: full(number, shape, step).tolist()
        for number, (name, shape) in enumerate(Weights(0).names.items())
    }
    return tensors == expected


@pytest.mark.timeout(900)
def test_every_engine_gets_all_tensors_in_order_chunk_by_chunk(sources: Path) -> None:
    """The embedding fills a chunk, the layer's two tensors share the second one. The second version
    replaces the first, over the same connection's files."""
    outcome = exchange(sources, Plan(((0, 1), (0, 1))), devices=(0, 1), dies_at=None)
    assert outcome.trainers == [[(True, BYTES)] * 2] * 2
    for calls, names, _ in outcome.engines:
        assert names == NAMES * 2
        assert calls == ["initialize reload", "finalize reload"] * 2
    assert all(is_version(each, 2.0) for each in outcome.engines)


@pytest.mark.timeout(900)
def test_an_engine_that_dies_in_the_middle_ends_no_transfer(sources: Path) -> None:
    """Engine 1 dies when the second chunk comes; engine 0 gets it all, and engine 2, which takes its
    place, the next version."""
    plan = Plan(((0, 1), (0, 2)))
    outcome = exchange(sources, plan, devices=(0, 1, 1), dies_at=2)
    assert outcome.trainers[0] == [(False, BYTES), (True, BYTES)]
    survivor, dead, successor = outcome.engines
    assert dead is None
    assert survivor[1] == NAMES * 2
    assert successor[1] == NAMES
    assert is_version(survivor, 2.0)
    assert is_version(successor, 2.0)


@pytest.mark.timeout(900)
def test_a_trainer_that_dies_in_the_middle_is_an_error_of_the_other(sources: Path) -> None:
    """Rank 1 dies at the second tensor: rank 0 waits for no one that is gone."""
    plan = Plan(((0, 1),), rank_dies_at="layer.weight")
    outcome = exchange(sources, plan, devices=(0, 1), dies_at=None)
    first, second = outcome.trainers
    assert second is None
    assert "Error" in first


def problem_of(sources: Path, answer: Connection) -> None:
    """Answer what `source_problem` says, without a GPU or a group of processes."""
    vllm_sources.install(sources, device=0)
    answer.send(source_problem())


def test_the_source_class_fits_the_release(sources: Path) -> None:
    """As `rmrl check` tries it."""
    context = multiprocessing.get_context("spawn")
    near, far = context.Pipe()
    process = context.Process(target=problem_of, args=(sources, far), daemon=True)
    process.start()
    far.close()
    assert answered(near) == ""
    process.join(PATIENCE_S)
