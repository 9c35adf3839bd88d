"""Every file of a checkpoint that real training engines wrote: cut, altered or gone, it is never
loaded, and the one before it is."""

from __future__ import annotations

import asyncio
import json
import re
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from rmrl.backends.base import ProcessSettings
from rmrl.errors import CheckpointError
from rmrl.trainer import checkpoint
from tests.backends.policies import make_batch, make_settings, write_policy
from tests.trainer.saved import save

ONE_PROCESS = ProcessSettings(threads=1, timeout_s=60)


def truncate(path: Path) -> None:
    """The last two bytes are gone (of a text file the last one may be a line's end, which nobody
    misses)."""
    path.write_bytes(path.read_bytes()[:-2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path) -> None:
    """One bit in the middle; the size stays."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def delete(path: Path) -> None:
    path.unlink()


TEARS: tuple[Callable[[Path], None], ...] = (truncate, empty, flip, delete)


@pytest.fixture(autouse=True, scope="module")
def _leave_group() -> Iterator[None]:
    yield
    from rmrl.backends.process_group import leave_group

    leave_group()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory):
    from rmrl.backends.fsdp.engine import FSDPEngine

    return FSDPEngine(
        settings=make_settings(write_policy(tmp_path_factory.mktemp("model"))), process=ONE_PROCESS
    )


@pytest.fixture(scope="module")
def saved(engine, tmp_path_factory: pytest.TempPathFactory) -> dict:
    """Checkpoints of steps 1 and 2, as a run lays them out, and the policy's log-probabilities at
    step 1."""
    root, probe = tmp_path_factory.mktemp("checkpoints"), make_batch(4, seed=9)
    found = {}
    for step in (1, 2):
        engine.update([make_batch(6, seed=step)])
        found[step] = engine.logprobs(probe).values

        def write(folder: Path, step: int = step) -> None:
            (folder / "trainer.json").write_text(json.dumps({"step": step, "loader": {"epoch": 0}}))
            engine.save(str(folder / "policy"))
            engine.save_hf(str(folder / "hf"))

        asyncio.run(save(root, step, write))
    assert not np.array_equal(found[1], found[2])
    return {"root": root, "probe": probe, "logprobs": found}


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_it_holds_weights_optimizer_random_state_and_an_export(saved: dict) -> None:
    names = {
        path.relative_to(saved["root"] / "step_000002").as_posix()
        for path in files_of(saved["root"] / "step_000002")
    }
    wanted = {
        "manifest.json",
        "trainer.json",
        "policy/state.json",
        "policy/rng-0.safetensors",
        "hf/config.json",
        "hf/tokenizer.json",
    }
    assert wanted <= names
    assert any(re.fullmatch(r"policy/tensors/.*\.safetensors", name) for name in names)
    assert any(re.fullmatch(r"hf/.*\.safetensors", name) for name in names)


@pytest.mark.parametrize("tear", TEARS, ids=lambda tear: tear.__name__)
def test_whichever_file_is_torn_the_checkpoint_before_is_used(
    saved: dict, tear: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    root, newest = saved["root"], saved["root"] / "step_000002"
    for path in files_of(newest):
        before = path.read_bytes()
        tear(path)
        caplog.clear()
        try:
            used = checkpoint.newest_complete(root)
            name = path.relative_to(newest).as_posix()
            assert used is not None, name
            assert used.step == 1, name
            assert len(caplog.messages) == 1, name
            assert name in caplog.messages[0]
            assert f"{newest} cannot be used" in caplog.messages[0]
            with pytest.raises(
                CheckpointError, match="cannot be used"
            ):  # trainer.resume_mode=resume_path
                checkpoint.verify(newest)
        finally:
            path.write_bytes(before)
    caplog.clear()
    assert checkpoint.newest_complete(root).step == 2  # type: ignore[union-attr]
    assert caplog.messages == []


def test_the_one_before_is_loaded_with_its_own_weights(saved: dict, engine) -> None:
    newest = saved["root"] / "step_000002"
    tensors = next((newest / "policy" / "tensors").glob("*.safetensors"))
    before = tensors.read_bytes()
    flip(tensors)
    try:
        used = checkpoint.newest_complete(saved["root"])
        assert used is not None
        engine.load(str(used.path / "policy"))
    finally:
        tensors.write_bytes(before)
    assert np.array_equal(engine.logprobs(saved["probe"]).values, saved["logprobs"][1])


def test_a_checkpoint_of_another_model_is_refused_with_the_tensor(
    saved: dict, tmp_path: Path
) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    from rmrl.backends.fsdp.engine import FSDPEngine

    other = write_policy(tmp_path / "other")
    shape = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
    }
    LlamaForCausalLM(
        LlamaConfig(vocab_size=512, num_hidden_layers=3, tie_word_embeddings=True, **shape)
    ).save_pretrained(other)
    with pytest.raises(
        CheckpointError,
        match=r"mlp.* with shape .*128.* the model has .*96.* it was written for another model",
    ):
        FSDPEngine(settings=make_settings(other), process=ONE_PROCESS).load(
            str(saved["root"] / "step_000002" / "policy")
        )


def untouched(saved: dict, caplog: pytest.LogCaptureFixture) -> None:
    assert sorted(path.name for path in saved["root"].iterdir()) == ["step_000001", "step_000002"]
    caplog.clear()
    assert checkpoint.newest_complete(saved["root"]).step == 2  # type: ignore[union-attr]
    assert caplog.messages == []


def test_a_disk_that_fills_up_under_the_engine_keeps_the_last_good_one(
    saved: dict, engine, caplog: pytest.LogCaptureFixture
) -> None:
    def write(folder: Path) -> None:
        (folder / "policy").mkdir()
        (folder / "policy" / ".state.json").symlink_to(
            "/dev/full"
        )  # every write to it fails with "No space left on device"
        engine.save(str(folder / "policy"))

    with pytest.raises(
        CheckpointError,
        match=(
            r"is full: the checkpoint of step 3 .* the last complete checkpoint is step_000002,"
            r" untouched"
        ),
    ):
        asyncio.run(save(saved["root"], 3, write))
    untouched(saved, caplog)


def test_a_failure_inside_torchs_writer_is_an_error_of_ours(
    saved: dict, engine, caplog: pytest.LogCaptureFixture
) -> None:
    """No file may grow past 64 KiB here, so the first shard fails half-way, on torch's own
    thread."""

    def write(folder: Path) -> None:
        limit, before = (
            resource.getrlimit(resource.RLIMIT_FSIZE),
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
        )
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, limit[1]))
        try:
            engine.save(str(folder / "policy"))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
            signal.signal(signal.SIGXFSZ, before)

    with pytest.raises(CheckpointError, match=r"cannot be written: .*File too large"):
        asyncio.run(save(saved["root"], 3, write))
    untouched(saved, caplog)


def test_only_the_newest_are_kept(saved: dict, tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    shutil.copytree(saved["root"], root)
    delete(root / "step_000002" / "policy" / "state.json")
    assert checkpoint.prune(root, 1) == []  # the torn one does not count
    asyncio.run(save(root, 3, lambda folder: (folder / "trainer.json").write_text("{}") and None))
    assert [path.name for path in checkpoint.prune(root, 1)] == ["step_000001", "step_000002"]
