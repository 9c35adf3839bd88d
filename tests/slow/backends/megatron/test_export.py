"""rmrl export of a Megatron checkpoint: bit by bit the weights that the engine has, whatever its
parallel sizes were."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from rmrl.backends.base import ProcessSettings
from rmrl.backends.megatron import whole
from rmrl.backends.megatron.whole import MegatronTensors
from rmrl.errors import CheckpointError
from rmrl.main_export import main
from rmrl.models.experts import one_by_one
from tests.backends.megatron.tiny import make_settings, write_tiny
from tests.backends.policies import make_batch, make_critic_batch, run_group

CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "tied": ("llama", "actor", {"tensor_model_parallel_size": 2}),
    "untied": ("qwen3", "actor", {"pipeline_model_parallel_size": 2}),
    "bfloat16": ("llama", "actor", {"dtype": "bfloat16"}),
    "experts": ("qwen3_moe", "actor", {"expert_model_parallel_size": 2}),
    "critic": (
        "qwen2",
        "critic",
        {"tensor_model_parallel_size": 2, "use_distributed_optimizer": False},
    ),
}
"""Case -> family, role and parallel sizes of two processes."""


def train(process: ProcessSettings, folder: str) -> dict[str, Any]:
    """Two updates of each case; <case>/<role's folder>, and beside it the engine's own weights."""
    from rmrl.backends.megatron import groups
    from rmrl.backends.megatron.engine import MegatronEngine

    for case, (family, role, megatron) in CASES.items():
        engine = MegatronEngine(
            make_settings(Path(folder) / family, role=role, **megatron), process
        )
        for seed in range(2):
            engine.update([(make_critic_batch if role == "critic" else make_batch)(4, seed=seed)])
        engine.save(str(Path(folder) / case / ("critic" if role == "critic" else "policy")))
        weights = {name: tensor.clone() for name, tensor in engine.weights()}
        if process.rank == 0:
            save_file(weights, Path(folder) / case / "weights.safetensors")
        groups.leave()
    dist.destroy_process_group()
    return {}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    for family, tied in (("llama", True), ("qwen2", False), ("qwen3", False), ("qwen3_moe", False)):
        write_tokenizer(write_tiny(folder / family, family, tied=tied, vocab_size=513))
    # Fresh processes, as a user has: all other groups are forked.
    run_group(train, 2, folder, str(folder), fresh=True)
    return folder


def write_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"<pad>": 0, "<s>": 1, "</s>": 2}, unk_token="<pad>"))
    PreTrainedTokenizerFast(
        tokenizer_object=words, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    ).save_pretrained(folder)


def export(*arguments: str) -> int:
    return main(list(arguments))


@pytest.mark.parametrize("case", ["tied", "untied", "experts", "critic"])
def test_an_export_has_the_engines_weights(
    checkpoints: Path, case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    _, role, _ = CASES[case]
    assert (
        export(
            f"checkpoint={checkpoints / case}",
            f"out={tmp_path / 'out'}",
            f"role={role}",
            "dtype=float32",
        )
        == 0
    )
    assert "reloaded, logits differ by at most 0 of" in capsys.readouterr().out
    expected, got = (
        load_file(checkpoints / case / "weights.safetensors"),
        exported(tmp_path / "out", role),
    )
    assert set(got) == set(expected)
    for name, tensor in expected.items():
        assert torch.equal(got[name], tensor), name


def exported(folder: Path, role: str) -> dict[str, torch.Tensor]:
    kind = AutoModelForSequenceClassification if role == "critic" else AutoModelForCausalLM
    model, info = kind.from_pretrained(folder, dtype="auto", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    fused = [
        (name, parameter.detach(), one_by_one(name, parameter))
        for name, parameter in model.named_parameters()
    ]
    return {
        key: tensor
        for name, parameter, views in fused
        for key, tensor in (views or {name: parameter}).items()
    }


def test_bfloat16_training_exports_its_weights_and_in_float32_its_master_weights(
    checkpoints: Path, tmp_path: Path
):
    expected = load_file(checkpoints / "bfloat16" / "weights.safetensors")
    for dtype in ("bfloat16", "float32"):
        assert (
            export(
                f"checkpoint={checkpoints / 'bfloat16'}",
                f"out={tmp_path / dtype}",
                f"dtype={dtype}",
            )
            == 0
        )
    rounded, exact = (
        exported(tmp_path / "bfloat16", "actor"),
        exported(tmp_path / "float32", "actor"),
    )
    for name, tensor in expected.items():
        assert tensor.dtype == torch.bfloat16
        assert torch.equal(rounded[name], tensor), name
        assert torch.equal(exact[name].bfloat16(), tensor), name
    assert any(not torch.equal(exact[name], tensor.float()) for name, tensor in expected.items())


def test_portions_do_not_change_what_is_read(checkpoints: Path, monkeypatch: pytest.MonkeyPatch):
    """Also where a portion ends between tensors that are stored in one."""
    expected = load_file(checkpoints / "untied" / "weights.safetensors")
    monkeypatch.setattr(whole, "AT_ONCE_BYTES", 40_000)
    reader = MegatronTensors(checkpoints / "untied" / "policy")
    assert reader.shapes == {name: tuple(tensor.shape) for name, tensor in expected.items()}
    for names in (list(reader.shapes), sorted(reader.shapes, key=lambda name: name.split(".")[-2])):
        read = list(reader.read(names))
        assert [name for name, _ in read] == names
        assert all(torch.equal(tensor, expected[name]) for name, tensor in read)


def test_megatron_is_not_needed(checkpoints: Path):
    """A machine that exports need not have it."""
    script = (
        "import sys; sys.modules['megatron'] = None\nfrom pathlib import Path; from"
        " rmrl.backends.export import READERS\nreader ="
        f" READERS['megatron-dist-safetensors'](Path({str(checkpoints / 'tied' / 'policy')!r}))\nprint(sum(tensor.numel()"
        " for _, tensor in reader.read(reader.shapes)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False
    )
    numbers = sum(
        tensor.numel()
        for tensor in load_file(checkpoints / "tied" / "weights.safetensors").values()
    )
    assert result.stdout.strip() == str(numbers), result.stderr


def test_torn_ones_are_refused(
    checkpoints: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = tmp_path / "torn"
    shutil.copytree(checkpoints / "tied", folder)
    files = sorted((folder / "policy" / "tensors").iterdir())
    assert len(files) >= 2
    for lost in files:
        held = lost.read_bytes()
        lost.unlink()
        assert export(f"checkpoint={folder}", f"out={tmp_path / 'out'}") == 6
        assert "torn" in capsys.readouterr().err
        lost.write_bytes(held[:-10])
        assert export(f"checkpoint={folder}", f"out={tmp_path / 'out'}") == 6
        assert "the checkpoint is torn" in capsys.readouterr().err
        lost.write_bytes(held)
    (folder / "policy" / "state.json").unlink()
    with pytest.raises(CheckpointError, match=r"no state\.json"):
        MegatronTensors(folder / "policy")
    assert not (tmp_path / "out").exists()


def test_a_base_model_that_has_moved(
    checkpoints: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """What a parameter holds is said by the checkpoint itself."""
    folder = tmp_path / "moved"
    shutil.copytree(checkpoints / "untied", folder)
    state = folder / "policy" / "state.json"
    state.write_text(state.read_text().replace(str(checkpoints / "qwen3"), str(tmp_path / "gone")))
    assert export(f"checkpoint={folder}", f"out={tmp_path / 'out'}") == 2
    assert "set base=<its folder or hub id>" in capsys.readouterr().err
    assert (
        export(f"checkpoint={folder}", f"out={tmp_path / 'out'}", f"base={checkpoints / 'qwen3'}")
        == 0
    )
