"""Checkpoints continue under other parallel sizes as if nothing had happened; one that cannot be
loaded is an error in all processes.

Compared with a run that was not interrupted: float32 weights after two steps before and two after
the checkpoint (1e-5, where these two steps move them by 1e-2), and, where the sizes stay, float32
master weights of bfloat16 training bit by bit. AdamW's epsilon is large: with a tiny one, an entry
whose gradient is nothing but rounding moves by the whole learning rate.
"""

from __future__ import annotations

import json
import pickle
import resource
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors import safe_open

from rmrl.backends.base import ProcessSettings
from rmrl.backends.export import READERS
from rmrl.backends.fsdp.engine import FSDPEngine
from rmrl.backends.micro_batches import split_by_length
from rmrl.backends.process_group import leave_group
from rmrl.backends.row_assignment import row_assignment
from rmrl.errors import CheckpointError
from tests.backends import policies
from tests.backends.full_disk import full_disk
from tests.backends.megatron.tiny import make_settings, write_tiny
from tests.backends.policies import make_batch, make_critic_batch, run_group

TP2, PP2 = {"tensor_model_parallel_size": 2}, {"pipeline_model_parallel_size": 2}
VPP = {**PP2, "virtual_pipeline_model_parallel_size": 2}
EP2 = {"expert_model_parallel_size": 2}
PLAIN, BF16 = {"use_distributed_optimizer": False}, {"dtype": "bfloat16"}


@dataclass(frozen=True, kw_only=True)
class Run:
    """An engine's life: it loads a checkpoint, makes two steps and saves, and then perhaps two
    more. Checkpoints are <name>-<steps>."""

    name: str
    megatron: Mapping[str, Any] = field(default_factory=dict)
    load: str | None = None
    model: str = "llama"
    role: str = "actor"
    steps: Sequence[int] = (2,)
    """Saved after as many steps."""


FIRST = [  # one process; no layout of two or four is involved in what the others are compared with
    Run(name="full", megatron=PLAIN, steps=(2, 4)),
    Run(name="critic", model="qwen2", role="critic", steps=(2, 4)),
    Run(name="moe", model="qwen3_moe", steps=(2, 4)),
    Run(name="bf16-plain", megatron={**BF16, **PLAIN}, steps=(2, 4)),
    Run(name="bf16-plain-again", megatron={**BF16, **PLAIN}, load="bf16-plain-2", steps=(4,)),
]
TWO = [
    Run(name="tp2", megatron=TP2),
    Run(name="tp2-pp2", megatron=PP2, load="tp2-2", steps=(4,)),
    Run(name="pp2", megatron={**PP2, **PLAIN}, load=None),
    Run(name="pp2-vpp", megatron=VPP, load="pp2-2", steps=(4,)),
    Run(name="one-vpp", megatron=VPP, load="full-2", steps=(4,)),
    Run(name="dp2"),
    Run(name="one-dp2", load="full-2", steps=(4,)),
    Run(name="dp2-plain", load="dp2-2", megatron=PLAIN, steps=(4,)),
    Run(name="critic-tp2", model="qwen2", role="critic", megatron=TP2),
    Run(
        name="critic-tp2-pp2",
        model="qwen2",
        role="critic",
        megatron=PP2,
        load="critic-tp2-2",
        steps=(4,),
    ),
    Run(name="moe-ep2", model="qwen3_moe", megatron=EP2),
    Run(name="moe-one-ep2", model="qwen3_moe", megatron=EP2, load="moe-2", steps=(4,)),
    Run(name="bf16-dp2", megatron=BF16, steps=(2, 4)),
    Run(name="bf16-dp2-again", megatron=BF16, load="bf16-dp2-2", steps=(4,)),
]
FOUR = [
    Run(name="one-tp2dp2", megatron=TP2, load="full-2", steps=(3, 4)),
    Run(name="tp2dp2-tp2pp2", megatron={**TP2, **PP2}, load="one-tp2dp2-3", steps=(4,)),
]
LAST = [
    Run(name="tp2-one", load="tp2-2", steps=(4,)),
    Run(name="dp2-one", load="dp2-2", megatron=PLAIN, steps=(4,)),
    Run(name="moe-ep2-one", model="qwen3_moe", load="moe-ep2-2", steps=(4,)),
    Run(name="bf16-dp2-one", load="bf16-dp2-2", megatron=BF16, steps=(2,)),
]


def engine_of(run: Run, folder: Path, process: ProcessSettings) -> Any:
    from rmrl.backends.megatron.engine import MegatronEngine

    settings = make_settings(folder / run.model, role=run.role, **run.megatron)
    settings.trained.optim.eps = 1e-3
    settings.trained.optim.weight_decay = 0.1
    return MegatronEngine(settings, process)


def step(engine: Any, run: Run, process: ProcessSettings, number: int) -> None:
    settings = engine._settings
    batch = (make_critic_batch if run.role == "critic" else make_batch)(8, seed=number)
    deal = row_assignment(settings.trained, process.world_size, section=settings.section)
    mine = split_by_length(batch.tokens.lengths, len(deal.output_ranks))[
        deal.share_of[process.rank]
    ]
    engine.update([batch.select(mine)])


def live(run: Run, folder: Path, process: ProcessSettings) -> Any:
    """The engine after its last save; what it says of its step counters just after loading is kept
    beside."""
    engine = engine_of(run, folder, process)
    done = 0
    if run.load is not None:
        engine.load(str(folder / run.load))
        done = engine._step
        (folder / f"{run.name}.{process.rank}.json").write_text(json.dumps(counters(engine)))
    for last in run.steps:
        for number in range(done, last):
            step(engine, run, process, number)
        done = last
        engine.save(str(folder / f"{run.name}-{last}"))
    return engine


def counters(engine: Any) -> dict[str, Any]:
    """AdamW's step counters: their values, how many there are and in how many places of memory."""
    states = [
        state for part in engine._part._optimizer.parts for state in part.optimizer.state.values()
    ]
    return {"steps": sorted({int(state["step"]) for state in states}), "counters": len(states),
            "places": len({state["step"].data_ptr() for state in states})}  # fmt: skip


def lives(process: ProcessSettings, folder: str, runs: Sequence[Run]) -> dict[str, Any]:
    from rmrl.backends.megatron import groups

    for run in runs:
        engine = live(run, Path(folder), process)
        engine._part = None
        groups.leave()
    dist.destroy_process_group()
    return {}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("megatron")
    write_tiny(folder / "llama", vocab_size=513)
    write_tiny(folder / "qwen2", "qwen2", tied=False, vocab_size=513)
    write_tiny(folder / "qwen3_moe", "qwen3_moe", tied=False, vocab_size=513)
    write_tiny(folder / "other", vocab_size=513, hidden_size=32)
    return folder


@pytest.fixture(scope="module")
def saved(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All runs' checkpoints."""
    for count, runs in ((1, FIRST), (2, TWO), (4, FOUR), (1, LAST)):
        run_group(lives, count, tmp_path_factory.mktemp("group"), str(models), runs)
    return models


def weights(checkpoint: Path) -> dict[str, torch.Tensor]:
    reader = READERS["megatron-dist-safetensors"](checkpoint)
    return dict(reader.read(reader.shapes))


def assert_continued(saved: Path, name: str, reference: str = "full") -> None:
    expected, before, got = (
        weights(saved / f"{reference}-4"),
        weights(saved / f"{reference}-2"),
        weights(saved / f"{name}-4"),
    )
    assert list(got) == list(expected)
    moved = max((expected[key] - before[key]).abs().max().item() for key in expected)
    assert moved > 1e-3
    for key, tensor in expected.items():
        torch.testing.assert_close(
            got[key], tensor, rtol=0, atol=1e-5, msg=lambda text, key=key: f"{key}: {text}"
        )


@pytest.mark.parametrize(
    "name",
    [
        "tp2-pp2",
        "tp2-one",
        "pp2-vpp",
        "one-vpp",
        "one-dp2",
        "dp2-one",
        "dp2-plain",
        "one-tp2dp2",
        "tp2dp2-tp2pp2",
    ],
)
def test_another_layout_continues(saved: Path, name: str):
    assert_continued(saved, name)


def test_a_critic_continues(saved: Path):
    assert weights(saved / "critic-4")["score.weight"].abs().max() > 1e-4
    assert_continued(saved, "critic-tp2-pp2", "critic")


@pytest.mark.parametrize("name", ["moe-ep2-one", "moe-one-ep2"])
def test_experts_continue_elsewhere(saved: Path, name: str):
    assert_continued(saved, name, "moe")


@pytest.mark.parametrize("name", ["bf16-plain", "bf16-dp2"])
def test_bfloat16_continues_bit_by_bit(saved: Path, name: str):
    """Master weights, whose lower bits bfloat16 weights do not have."""
    expected, got = weights(saved / f"{name}-4"), weights(saved / f"{name}-again-4")
    for key, tensor in expected.items():
        assert tensor.dtype == torch.float32
        assert torch.equal(got[key], tensor), key
    assert any(not torch.equal(tensor, tensor.bfloat16().float()) for tensor in expected.values())


def test_everything_is_stored_as_loaded(saved: Path):
    """Loaded in one process and saved at once: also averages of parameters that two processes
    stepped in ranges."""
    expected, got = stored(saved / "bf16-dp2-2"), stored(saved / "bf16-dp2-one-2")
    assert {name.split(".")[1] for name in expected if name.startswith("optimizer")} == {
        "exp_avg",
        "exp_avg_sq",
        "step",
    }
    assert set(got) == set(expected)
    for name, tensor in expected.items():
        assert torch.equal(got[name], tensor), name


def stored(checkpoint: Path) -> dict[str, torch.Tensor]:
    from rmrl.backends.storage import read_pieces, stored_tensors, whole

    tensors = {
        name: torch.zeros(size, dtype=dtype)
        for name, (size, dtype) in stored_tensors(checkpoint / "tensors").items()
    }
    read_pieces(
        checkpoint / "tensors",
        [whole(name, tensor) for name, tensor in tensors.items()],
        alone=True,
    )
    return {name: tensor for name, tensor in tensors.items() if name != "shape"}


@pytest.mark.parametrize(
    "name", ["one-dp2", "one-tp2dp2", "bf16-dp2-again", "bf16-plain-again", "tp2-one"]
)
def test_each_parameter_counts_its_own_steps(saved: Path, name: str):
    """Loaded into an optimizer that never stepped. One counter for all would count every
    parameter's steps."""
    for file in sorted(saved.glob(f"{name}.*.json")):
        found = json.loads(file.read_text())
        assert found["steps"] == [2]
        assert found["places"] == found["counters"] > 1


def test_no_process_writes_what_another_writes(saved: Path):
    """Of data-parallel processes each writes a part of the 26 parameters, four of them in halves,
    and of the averages its own ranges."""
    files: list[list[str]] = []
    for file in sorted((saved / "dp2-2" / "tensors").iterdir()):
        with safe_open(file, framework="pt") as opened:
            files.append(list(opened.keys()))
    parameters = [name for names in files for name in names if name.startswith("model.")]
    assert (len(parameters), len(set(parameters))) == (30, 26)
    assert sum(any(name.startswith("model.") for name in names) for names in files) >= 2
    assert {
        name for names in files for name in names if not name.startswith(("model.", "optimizer."))
    } == {"shape"}


def test_padding_is_not_stored(saved: Path):
    """Two processes hold 257 rows each of a vocabulary of 513."""
    assert stored(saved / "tp2-2")["model.embedding.word_embeddings.weight"].shape == (513, 64)


# --- what cannot be loaded

ANOTHER_BACKEND = "resume with the strategy that wrote it"


def torn(saved: Path, name: str, tear: Callable[[Path], None]) -> str:
    shutil.copytree(saved / "tp2-2", saved / name)
    tear(saved / name)
    return name


def cut(folder: Path) -> None:
    file = sorted((folder / "tensors").iterdir())[1]
    file.write_bytes(file.read_bytes()[:-8])


class Trap:
    """Unpickled, it leaves a file behind."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.file,)


def refusals(process: ProcessSettings, folder: str) -> dict[str, Any]:
    """What each process says to checkpoints that cannot be loaded; then to one with traps in it,
    and to a full disk."""
    from rmrl.backends.megatron import groups

    run, problems = Run(name="refusing", megatron=PP2), {}
    engine = engine_of(run, Path(folder), process)
    before = {name: tensor.clone() for name, tensor in engine.weights("float32")}
    for name in ("lost", "first-lost", "cut", "no-state", "fsdp"):
        problems[name] = problem(lambda name=name: engine.load(f"{folder}/{name}"))
    unchanged = all(torch.equal(before[name], tensor) for name, tensor in engine.weights("float32"))
    engine.load(f"{folder}/trapped")
    loaded = not any(
        torch.equal(before[name], tensor) for name, tensor in engine.weights("float32")
    )
    with full_disk(1000 if process.rank else resource.RLIM_INFINITY):
        problems["full"] = problem(lambda: engine.save(f"{folder}/full-disk"))
    other = engine_of(Run(name="other", model="other", megatron=PP2), Path(folder), process)
    problems["other"] = problem(lambda: other.load(f"{folder}/tp2-2"))
    groups.leave()
    dist.destroy_process_group()
    (Path(folder) / f"refusals.{process.rank}.json").write_text(
        json.dumps({"problems": problems, "unchanged": unchanged, "loaded": loaded})
    )
    return {}


def problem(call: Callable[[], Any]) -> str:
    try:
        call()
    except CheckpointError as error:
        return str(error)
    return "none"


@pytest.fixture(scope="module")
def fsdp(saved: Path) -> Iterator[FSDPEngine]:
    """The same model in the other backend, in this process; its checkpoint is `fsdp`."""
    settings = policies.make_settings(saved / "llama")
    engine = FSDPEngine(settings=settings, process=ProcessSettings(threads=1, timeout_s=60))
    engine.save(str(saved / "fsdp"))
    yield engine
    leave_group()


def test_a_checkpoint_of_megatron_is_refused_by_fsdp(saved: Path, fsdp: FSDPEngine):
    with pytest.raises(CheckpointError, match=ANOTHER_BACKEND):
        fsdp.load(str(saved / "tp2-2"))


@pytest.fixture(scope="module")
def refused(
    saved: Path, fsdp: FSDPEngine, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    """Per process, what `refusals` found."""
    torn(saved, "lost", lambda folder: sorted((folder / "tensors").iterdir())[-1].unlink())
    torn(saved, "first-lost", lambda folder: sorted((folder / "tensors").iterdir())[0].unlink())
    torn(saved, "cut", cut)
    torn(saved, "no-state", lambda folder: (folder / "state.json").unlink())
    torn(saved, "trapped", lambda folder: trap(folder / "tensors", saved / "trap-sprung"))
    run_group(refusals, 2, tmp_path_factory.mktemp("group"), str(saved))
    return [json.loads((saved / f"refusals.{rank}.json").read_text()) for rank in range(2)]


def trap(folder: Path, sprung: Path) -> None:
    """Everything that megatron-core's own storage would unpickle, and a file that says it is a
    checkpoint of that kind."""
    for name in ("common.pt", ".metadata", "metadata.pt"):
        (folder / name).write_bytes(pickle.dumps(Trap(sprung)))
    (folder / "metadata.json").write_text(
        json.dumps({"sharded_backend": "torch_dist", "sharded_backend_version": 1})
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("lost", "it is torn, or was written for another model"),
        ("first-lost", "it is torn, or was written for another model"),
        ("cut", "the checkpoint is torn; resume from another"),
        ("no-state", "is no complete checkpoint (it has no state.json)"),
        ("fsdp", ANOTHER_BACKEND),
        (
            "other",
            (
                "was written for another model; resume from another checkpoint, or with the model"
                " it was saved from"
            ),
        ),
        ("full", "cannot be written: "),
    ],
)
def test_what_cannot_be_loaded_or_saved_is_refused_by_all(
    refused: list[dict[str, Any]], name: str, said: str
):
    for process in refused:
        assert said in process["problems"][name]


def test_a_torn_checkpoint_leaves_the_model_as_it_was(refused: list[dict[str, Any]]):
    assert [process["unchanged"] for process in refused] == [True, True]


def test_nothing_is_unpickled(saved: Path, refused: list[dict[str, Any]]):
    assert [process["loaded"] for process in refused] == [True, True]
    assert not (saved / "trap-sprung").exists()
    pickle.loads(pickle.dumps(Trap(saved / "trap-sprung")))  # the trap works
    assert (saved / "trap-sprung").exists()
