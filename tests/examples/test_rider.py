"""The customer-service example: its data, its scripts, and the reference command line of the two
judges on a CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path
from types import ModuleType

import pytest

from rmrl.config.compat import translate
from rmrl.config.load import compose_config
from rmrl.rewards.dropins.dropin import load_dropin
from tests.scripts import load_script

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "rider"
RULE = load_dropin(ROOT / "reward_functions" / "rider_format.py", "rider_format").compute_score


def example(name: str) -> ModuleType:
    return load_script(EXAMPLE / f"{name}.py")


@pytest.fixture(scope="module")
def make_data() -> ModuleType:
    return example("make_data")


def test_the_shipped_dialogues_are_what_make_data_writes(
    make_data: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    make_data.main(["--out", str(tmp_path / "again.jsonl")])
    assert (tmp_path / "again.jsonl").read_bytes() == (EXAMPLE / "dialogues.jsonl").read_bytes()
    assert "48 dialogues" in capsys.readouterr().out


def test_rows_differ_follow_the_seed_and_keep_the_form(make_data: ModuleType):
    rows = list(islice(make_data.rows(3), 200))
    assert rows == list(islice(make_data.rows(3), 200))
    assert rows != list(islice(make_data.rows(4), 200))
    assert len({json.dumps(row, ensure_ascii=False) for row in rows}) == 200
    assert RULE is not None
    for row in rows:
        text = json.dumps(row, ensure_ascii=False)
        assert not [
            c
            for c in (
                "{minutes}",
                "{order}",
                "{place}",
                "{limit}",
                "{hours}",
                "{money}",
                "{calls}",
                "{km}",
            )
            if c in text
        ]
        info = {"rules": 3, "knowledge": 3, "solutions": list(make_data.SOLUTIONS)}
        assert RULE("rider", json.dumps(row["target"]), None, info)["problem"] == ""
        (rule,) = row["target"]["RelevantConstraintRuleNumber"]
        line = next(
            line
            for line in row["input"][1]["content"].split("【规则】")[1].splitlines()
            if line.startswith(f"{rule}. ")
        )
        assert line[3:] not in make_data.OTHER_RULES


def test_each_kind_of_defect_breaks_the_form(
    make_data: ModuleType, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "make_data", make_data)
    policy = example("make_policy")
    assert RULE is not None
    reply = next(make_data.rows(0))["target"]
    verdicts = [
        RULE("rider", defect(reply), None, {"rules": 3, "knowledge": 3})["problem"]
        for defect in policy.DEFECTS
    ]
    assert len(set(verdicts)) == 4
    assert "" not in verdicts
    pairs = policy.samples(300, mistake=0.5, seed=0)
    right = sum(RULE("rider", text, None, {"rules": 3})["score"] for _, text in pairs)
    assert 120 < right < 180  # half of 300
    told = {row["input"][1]["content"] for row in islice(make_data.rows(0), 48)}
    assert not told & {messages[1]["content"] for messages, _ in pairs}


@pytest.mark.parametrize("script", ["run.sh", "run_multinode.sh"])
def test_scripts_parse(script: str):
    subprocess.run(["bash", "-n", str(EXAMPLE / script)], check=True, timeout=300)


def test_what_the_multinode_script_gives_is_a_configuration():
    environment = {
        **os.environ,
        "POLICY": "/m/policy",
        "RM1": "/m/one",
        "RM2": "/m/two",
        "NNODES": "3",
        "TP": "2",
        "DATA": "/d",
    }
    command = ["bash", str(EXAMPLE / "run_multinode.sh"), "show", "trainer.seed=7"]
    shown = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=300
    ).stdout.splitlines()
    config = compose_config(shown)
    translate(config)
    assert config.reward.models == ["rider_reward", "consistency_reward"]
    assert config.reward.weights == [0.3, 0.5]
    assert [config.reward.specs[name]["path"] for name in config.reward.models] == [
        "/m/one",
        "/m/two",
    ]
    assert config.reward.specs["rider_reward"]["engine"]["tensor_parallel_size"] == 2
    assert (config.trainer.nnodes, config.trainer.n_gpus_per_node, config.trainer.seed) == (3, 8, 7)
    assert config.data.train_files == "/d/train.parquet"
    assert config.actor_rollout_ref.ref.param_offload is True


def test_the_multinode_script_without_a_command_says_what_there_is():
    done = subprocess.run(
        ["bash", str(EXAMPLE / "run_multinode.sh")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 2
    assert "head | worker <address> | submit" in done.stderr


def test_what_run_gives_is_a_configuration(tmp_path: Path):
    """The script runs as it is; `python` is a program that prints what it is given."""
    printer = tmp_path / "python"
    printer.write_text(
        '#!/usr/bin/env bash\n[[ $1 == -m ]] && shift 2 && printf "%s\\n" "$@"\nexit 0\n'
    )
    printer.chmod(0o755)
    environment = {
        **os.environ,
        "PYTHON_BIN": str(printer),
        "POLICY": "/m/policy",
        "JUDGE": "/m/judge",
        "DATA": str(tmp_path),
    }
    command = ["bash", str(EXAMPLE / "run.sh"), "trainer.seed=7"]
    given = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=300
    ).stdout.splitlines()
    config = compose_config(given)
    assert (config.reward.combine, config.reward.gates) == ("gate", ["rider_format"])
    assert config.reward.models == [
        "rider_format",
        "rider_reward",
        "consistency_reward",
        "rider_similarity",
    ]
    assert config.reward.specs["consistency_reward"] == {"path": "/m/judge"}
    assert (config.actor_rollout_ref.model.path, config.trainer.seed) == ("/m/policy", 7)
