"""rmrl export: what training saved comes out as a folder that transformers loads, with the weights
that training had."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from rmrl.backends.base import ProcessSettings
from rmrl.backends.fsdp.engine import FSDPEngine
from rmrl.backends.process_group import leave_group
from rmrl.commands.export import parse
from rmrl.main_export import main
from tests.backends.policies import write_policy
from tests.slow.backends.test_strategies import batch_of, settings_of


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("policies")
    write_policy(folder / "llama")
    return folder


@pytest.fixture(scope="module")
def checkpoints(policies: Path) -> Path:
    """<case>/<role's folder>, each two updates old, and beside it what the engine itself
    exports."""
    for case, folder in (("tied", "policy"), ("lora", "policy"), ("critic", "critic")):
        settings = settings_of(case, "fsdp2", str(policies))
        settings.trained.checkpoint.save_contents = ["model"]
        engine = FSDPEngine(settings=settings, process=ProcessSettings(threads=1, timeout_s=60))
        for step in range(2):
            engine.update([batch_of(settings.role, 4, seed=step)])
        engine.save(str(policies / "runs" / case / folder))
        engine.save_hf(str(policies / "runs" / case / "hf"), "float32")
    leave_group()
    return policies / "runs"


def run(*arguments: str) -> int:
    return main(list(arguments))


@pytest.mark.parametrize("case", ["tied", "lora"])
def test_an_export_has_the_weights_of_training(
    checkpoints: Path, case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "out"
    assert run(f"checkpoint={checkpoints / case}", f"out={out}", "dtype=float32") == 0
    assert "reloaded, logits differ by at most" in capsys.readouterr().out
    expected = AutoModelForCausalLM.from_pretrained(checkpoints / case / "hf")
    got, info = AutoModelForCausalLM.from_pretrained(out, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    for name, parameter in expected.named_parameters():
        torch.testing.assert_close(got.get_parameter(name), parameter, rtol=0, atol=1e-6)
    assert AutoTokenizer.from_pretrained(out).pad_token == "<pad>"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_critic_comes_out_as_a_reward_model(checkpoints: Path, tmp_path: Path):
    assert (
        run(f"checkpoint={checkpoints / 'critic'}", f"out={tmp_path / 'out'}", "role=critic") == 0
    )
    got = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert got.config.num_labels == 1
    assert got.config.pad_token_id == 0
    expected = AutoModelForSequenceClassification.from_pretrained(
        checkpoints / "critic" / "hf"
    ).score.weight
    assert expected.abs().max() > 1e-4  # it has learned
    assert torch.equal(got.score.weight.float(), expected.bfloat16().float())


def test_what_is_mistyped_is_named(
    checkpoints: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert run(f"chekpoint={checkpoints}", "check=maybe") == 2
    shown = capsys.readouterr().err
    assert "chekpoint: rmrl export has no such key; did you mean 'checkpoint'" in shown
    assert "out is missing: give out=<folder>" in shown
    assert run("checkpoint=a", "out=b", "check=maybe") == 2
    assert "check: " in capsys.readouterr().err
    assert run(f"checkpoint={checkpoints / 'tied'}", f"out={tmp_path}") == 2
    assert "exists already: give another folder, or overwrite=true" in capsys.readouterr().err
    assert parse(["checkpoint=a", "out=b", "check=false"]).check is False


def test_a_folder_that_is_not_there_is_named_with_its_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    for key, others in (("reward_model", ()), ("base", ("checkpoint=somewhere",))):
        assert run(f"{key}={tmp_path}/none", *others, f"out={tmp_path / 'out'}") == 2
        assert f"{key}: '{tmp_path}/none' is not a folder" in capsys.readouterr().err


def test_a_role_that_the_checkpoint_lacks(
    checkpoints: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert run(f"checkpoint={checkpoints / 'tied'}", f"out={tmp_path / 'out'}", "role=critic") == 6
    assert "holds no critic, only actor: set role=actor" in capsys.readouterr().err
    assert run(f"checkpoint={tmp_path}", f"out={tmp_path / 'out'}") == 6
    assert "no state.json in it" in capsys.readouterr().err


def torn(checkpoints: Path, tmp_path: Path) -> Path:
    shutil.copytree(checkpoints / "tied", tmp_path / "torn")
    return tmp_path / "torn"


def test_a_torn_checkpoint_leaves_nothing(
    checkpoints: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = torn(checkpoints, tmp_path)
    (shard,) = (folder / "policy" / "tensors").glob("*.safetensors")
    whole = shard.read_bytes()
    shard.write_bytes(whole[: len(whole) // 2])
    assert run(f"checkpoint={folder}", f"out={tmp_path / 'out'}") == 6
    assert "the checkpoint is torn" in capsys.readouterr().err
    shard.unlink()
    assert run(f"checkpoint={folder}", f"out={tmp_path / 'out'}") == 6
    assert "the checkpoint is torn, or base=" in capsys.readouterr().err
    (folder / "manifest.json").write_text("{}")
    assert run(f"checkpoint={folder}", f"out={tmp_path / 'out'}") == 6
    assert "manifest.json was altered" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_base_model_that_has_moved(
    checkpoints: Path, policies: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = torn(checkpoints, tmp_path)
    state = json.loads((folder / "policy" / "state.json").read_text())
    state["model"]["path"] = str(tmp_path / "gone")
    (folder / "policy" / "state.json").write_text(json.dumps(state))
    assert run(f"checkpoint={folder}", f"out={tmp_path / 'out'}") == 2
    assert (
        "needed for its config and cannot be read: set base=<its folder or hub id>"
        in capsys.readouterr().err
    )
    config_alone = tmp_path / "config"
    config_alone.mkdir()
    for file in policies.glob("llama/*.json"):
        shutil.copy(file, config_alone)
    assert run(f"checkpoint={folder}", f"out={tmp_path / 'out'}", f"base={config_alone}") == 0


def test_a_folder_that_answers_differently_is_not_kept(
    checkpoints: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    """No difference is small enough here, not even none."""
    monkeypatch.setattr("rmrl.backends.export.PLAIN_TOLERANCE", -1.0)
    assert run(f"checkpoint={checkpoints / 'tied'}", f"out={tmp_path / 'out'}") == 6
    assert "nothing was written" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
