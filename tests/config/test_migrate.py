"""`rmrl migrate`: from a script that starts verl to the command here, with every difference
named."""

from __future__ import annotations

import io
import shlex
from pathlib import Path

import pytest

from rmrl.cli import main
from rmrl.config.compat.migrate import migrate
from rmrl.config.load import compose_config
from rmrl.errors import ConfigError

GRPO = """#!/bin/bash
set -x
MODEL=${MODEL:-Qwen/Qwen3-8B}
prompt=1024
response=$((1024 * 4))
fast=(
    actor_rollout_ref.actor.use_torch_compile=False   # kernels
    actor_rollout_ref.model.use_fused_kernels=True
)
python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=grpo \\
    data.train_files="['$HOME/a.parquet', '$HOME/b.parquet']" \\
    data.max_prompt_length=$prompt data.max_response_length=${response} \\
    actor_rollout_ref.model.path=$MODEL \\
    actor_rollout_ref.rollout.tensor_model_parallel_size=2 \\
    actor_rollout_ref.rollout.n=5 \\
    +actor_rollout_ref.actor.optim.override_optimizer_config.eps=1e-6 \\
    trainer.experiment_name="run-$(date +%s)" \\
    trainer.logger='["console","wandb"]' "${fast[@]}" $@ 2>&1 | tee log
"""
MEGATRON = """python -m verl.trainer.main_ppo --config-path=./config --config-name='ppo_megatron_trainer.yaml' \\
    actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=2 actor_rollout_ref.ref.megatron.pipeline_model_parallel_size=2 \\
    actor_rollout_ref.rollout.multi_turn.enable=True algorithm.lamda=0.9 data.train_files=$TRAIN
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "run.sh"
    path.write_text(GRPO, encoding="utf-8")
    return path


def test_the_command_of_a_script(script: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["migrate", str(script)]) == 0
    printed = capsys.readouterr().out
    command, _, table = printed.partition("\n\n")
    assert command.startswith("RESULT_1=$(date +%s)\nrmrl train \\\n")
    assert "    \"data.train_files=['$HOME/a.parquet', '$HOME/b.parquet']\" \\\n" in command
    assert "    trainer.experiment_name=run-$RESULT_1 \\\n" in command
    words = shlex.split(command.replace("\\\n", " ").partition("rmrl train")[2])
    config = compose_config(words)
    assert config.data.max_response_length == 4096
    assert config.actor_rollout_ref.rollout.tensor_parallel_size == 2
    assert config.actor_rollout_ref.actor.optim.eps == 1e-6
    assert config.trainer.logger == ["console", "wandb"]
    assert config.actor_rollout_ref.model.path == "Qwen/Qwen3-8B"
    lines = table.splitlines()
    assert lines[0] == "# 12 settings of verl.trainer.main_ppo: 8 kept as they are"
    assert "# note: not set in the script: $HOME" in lines
    assert any(line.startswith("# note: the script passes its own arguments on") for line in lines)
    assert (
        "# renamed: actor_rollout_ref.rollout.tensor_model_parallel_size=2 ->"
        " actor_rollout_ref.rollout.tensor_parallel_size=2" in lines
    )
    assert sum(line.startswith("# no effect: ") for line in lines) == 2
    assert all(line.startswith("# ") for line in lines)


def test_what_is_refused_is_left_out_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "run.sh"
    path.write_text(MEGATRON, encoding="utf-8")
    assert main(["migrate", str(path)]) == 2
    command, _, table = capsys.readouterr().out.partition("\n\n")
    assert (
        command.replace(" \\\n   ", "") == "rmrl train actor_rollout_ref.actor.strategy=megatron"
        " actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=2"
        " data.train_files=$TRAIN"
    )
    assert (
        "# refused: actor_rollout_ref.rollout.multi_turn.enable=True: responses are single turns"
        in table
    )
    assert "# refused: algorithm.lamda: no key 'lamda' in algorithm; did you mean 'lam'?" in table


def test_a_list_of_overrides_on_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(
        "sys.stdin", io.StringIO("trainer.seed=3\nactor_rollout_ref.rollout.mode=sync\n")
    )
    assert main(["migrate"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(
        "rmrl train \\\n    trainer.seed=3\n\n# 2 settings of the list: 1 kept as they are\n"
    )
    assert (
        "# no effect: actor_rollout_ref.rollout.mode=sync (the engine is always asynchronous)"
        in printed
    )


def test_every_command_of_a_script_and_other_programs():
    text = (
        "python -m verl.trainer.main_ppo trainer.seed=1\nray job submit -- python3 -m"
        " recipe.prime.main_prime trainer.seed=2\n"
    )
    first, second = migrate(text)
    assert (first.overrides, first.refused) == (("trainer.seed=1",), ())
    assert second.overrides == ("trainer.seed=2",)
    assert "reward models are not trained here" in second.refused[0]
    (generation,) = migrate("python3 -m verl.trainer.main_generation data.path=x")
    assert "use rmrl score to score responses of another program" in generation.refused[0]


@pytest.mark.parametrize("text", ["", "echo hello", "python train.py --lr 3"])
def test_a_script_without_such_a_line(text: str):
    with pytest.raises(ConfigError, match="no line that starts verl"):
        migrate(text)


def test_a_script_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["migrate", str(tmp_path / "none.sh")]) == 2
    assert "give a shell script, or overrides on standard input" in capsys.readouterr().err
