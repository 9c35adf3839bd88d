"""Every example that trains: its script is bash, what it gives is a configuration without problems,
its README names what exists."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from rmrl.config.check import config_problems
from rmrl.config.load import compose_config, shipped
from rmrl.config.schema import Config

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(path.parent.name for path in (ROOT / "examples").glob("*/run.sh"))
WITH_SIZES = ("grpo_math", "limr", "ppo_gsm8k", "sft_then_grpo", "train_judge")
"""Examples whose script has a small size for machines without a GPU."""
ESTIMATORS = {
    "grpo_math": "grpo",
    "limr": "gae",
    "ppo_gsm8k": "gae",
    "sft_then_grpo": "grpo",
    "train_judge": "grpo",
}
FUNCTIONS = shipped("reward_functions")
PRINTER = """#!/usr/bin/env bash
if [[ $2 == rmrl.main_ppo ]]; then shift 2; printf "%s\\n" "$@"; else printf "%s\\n" "$*" >>"$ASKED"; fi
"""


class Given:
    """What a run of a script gave: the settings of the training job, and the commands that it ran
    before."""

    def __init__(self, name: str, folder: Path, *arguments: str, **environment: str) -> None:
        printer, asked = folder / "python", folder / "asked"
        printer.write_text(PRINTER)
        printer.chmod(0o755)
        asked.write_text("")
        kept = {key: value for key, value in os.environ.items() if key in ("PATH", "HOME")}
        done = subprocess.run(
            ["bash", str(ROOT / "examples" / name / "run.sh"), *arguments],
            env={**kept, "PYTHON_BIN": str(printer), "ASKED": str(asked), "MODELS": str(folder), "DATA": str(folder), **environment},
            capture_output=True, text=True, check=True, timeout=300,
        )  # fmt: skip
        self.settings = done.stdout.splitlines()
        self.commands = asked.read_text().splitlines()

    def config(self) -> Config:
        return compose_config(self.settings)


def test_there_is_a_script_for_each():
    assert set(WITH_SIZES) <= set(EXAMPLES)
    assert {"arithmetic", "demo", "rider"} <= set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_script_is_bash_and_executable(name: str):
    script = ROOT / "examples" / name / "run.sh"
    subprocess.run(["bash", "-n", str(script)], check=True, timeout=300)
    assert os.access(script, os.X_OK)


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_it_gives_has_no_problem_and_names_rewards_that_ship(name: str, tmp_path: Path):
    judge = tmp_path / "weak_judge"  # of examples/watch, as `rmrl train-rm` writes it
    judge.mkdir()
    section = "models: [weak_judge]\nspecs: {weak_judge: {kind: bradley_terry, path: best}}\n"
    (judge / "reward.yaml").write_text(section)
    for size in "01":
        config = Given(name, tmp_path, "trainer.seed=7", SMALL=size).config()
        assert config_problems(config) == []
        assert config.trainer.seed == 7
        assert [
            r
            for r in config.reward.models
            if r not in config.reward.specs
            and not r.startswith("env.")
            and not (Path(config.reward.functions_dir or FUNCTIONS) / f"{r}.py").is_file()
        ] == []


@pytest.mark.parametrize("name", WITH_SIZES)
def test_the_two_sizes(name: str, tmp_path: Path):
    full = Given(name, tmp_path, SMALL="0", POLICY="/m/p", SFT="/m/p", GPUS="4").config()
    small = Given(name, tmp_path, SMALL="1", POLICY="/m/p", SFT="/m/p", GPUS="1").config()
    assert full.algorithm.adv_estimator == small.algorithm.adv_estimator == ESTIMATORS[name]
    assert full.reward.models == small.reward.models
    assert full.actor_rollout_ref.model.path == small.actor_rollout_ref.model.path == "/m/p"
    assert (full.trainer.n_gpus_per_node, small.trainer.n_gpus_per_node) == (4, 1)
    assert small.trainer.total_training_steps is not None
    assert small.trainer.total_training_steps <= 30
    assert small.data.max_response_length < full.data.max_response_length
    assert full.trainer.experiment_name != small.trainer.experiment_name  # one folder each


@pytest.mark.parametrize(
    ("name", "environment", "command"),
    [
        ("ppo_gsm8k", {"SMALL": "0", "GSM8K": "/d"}, "data_preprocess/gsm8k.py --source /d --out {data}"),
        ("ppo_gsm8k", {"SMALL": "1"}, "examples/arithmetic/make_data.py --out {data}"),
        ("grpo_math", {"SMALL": "0"}, "data_preprocess/hendrycks_math.py --source DigitalLearningGmbH/MATH-lighteval --out {data}"),
        ("grpo_math", {"SMALL": "1"}, "data_preprocess/arithmetic.py --out {data} --train 512 --test 48 --style boxed"),
        ("grpo_math", {"SMALL": "1", "MATH": __file__},
         f"data_preprocess/hendrycks_math.py --source {__file__} --test-share 0.2 --out {{data}}"),
        ("limr", {"SMALL": "0"}, "data_preprocess/limr.py --source GAIR/LIMR --test-source HuggingFaceH4/MATH-500 --out {data}"),
        ("limr", {"SMALL": "1"}, "data_preprocess/arithmetic.py --out {data} --train 512 --test 48 --style boxed"),
        ("sft_then_grpo", {"SMALL": "0"}, "data_preprocess/gsm8k.py --source openai/gsm8k --out {data}"),
        ("sft_then_grpo", {"SMALL": "1", "BASE": "/b", "SFT": "/s", "SFT_OPTIONS": "--epochs 2"},
         "examples/sft_then_grpo/sft.py --model /b --data {data}/train.parquet --out /s --epochs 2"),
    ],
)  # fmt: skip
def test_what_is_made_first(name: str, environment: dict[str, str], command: str, tmp_path: Path):
    given = Given(name, tmp_path, **environment)
    assert command.format(data=tmp_path) in given.commands
    scripts = [line.split()[0] for line in given.commands if not line.startswith("-m rmrl.main_")]
    assert [script for script in scripts if not (ROOT / script).is_file()] == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_readme_shows_the_one_command_and_names_keys_that_exist(name: str):
    text = (ROOT / "examples" / name / "README.md").read_text(encoding="utf-8")
    assert f"bash examples/{name}/run.sh" in text
    keys = re.findall(
        r"\b((?:actor_rollout_ref|algorithm|critic|data|trainer)(?:\.[a-z_]+)+)=([\w./{}\[\],-]+)",
        text,
    )
    for key, value in keys:
        compose_config([f"{key}={value}"])


@pytest.mark.parametrize(
    ("argument", "folder"),
    [
        ("trainer.seed=7", "runs/demo/smollm2"),
        ("trainer.experiment_name=mine", "runs/demo/mine"),
        ("trainer.default_local_dir=/r/x", "/r/x"),
    ],
)
def test_the_demo_ends_with_a_report_of_its_run(argument: str, folder: str, tmp_path: Path):
    assert Given("demo", tmp_path, argument).commands[-1] == f"-m rmrl.main_report {folder}"
