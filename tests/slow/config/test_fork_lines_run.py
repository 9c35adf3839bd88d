# ruff: noqa: RUF001
# Chinese text has the punctuation of Chinese.

"""The two command lines of VeRL-with-RMs' README with its own reward files and its own rule,
unchanged, on a CPU."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rmrl.data.write import write_rows
from tests.config.reference_lines import SEVERAL_NODES, TWO_JUDGES, changed, typed
from tests.forks.servers import import_path
from tests.inputs import read_lines
from tests.trainer.job import REPOSITORY, run_typed

FORK = Path(__file__).resolve().parents[4] / "shared" / "data" / "fork"
pytestmark = pytest.mark.skipif(not FORK.is_dir(), reason=f"{FORK} is not here")

REPLY = {
    "Thought": "",
    "Response": "客服:我会联系商家核实。",
    "ResponseSolution": "无",
    "DialogueAgreeSolution": "同意",
    "RelevantConstraintRuleNumber": [1],
    "RelevantKnowledgeNumber": [],
}
TRUTH = json.dumps(REPLY, ensure_ascii=False)


def row(number: int, **more: Any) -> dict[str, Any]:
    """As its process_rider.py writes one: no data_source, a prompt per reward model."""
    return {
        "prompt": [{"role": "user", "content": f"骑手 {number}"}],
        "rm_prompt_0": "请评判：{response}",
        "rm_prompt_1": "请评判：{response}",
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": TRUTH},
        "extra_info": {"index": number},
        **more,
    }


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A working directory with its reward files in reward_functions/ and four rows."""
    shutil.copytree(FORK / "reward_function", tmp_path / "reward_functions")
    write_rows(tmp_path / "train.parquet", [row(number) for number in range(4)], overwrite=True)
    return tmp_path


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(TWO_JUDGES, id="single node", marks=pytest.mark.nightly),
        pytest.param(TWO_JUDGES + SEVERAL_NODES, id="several nodes"),
    ],
)
def test_the_lines_of_its_readme_train(line: str, place: Path, tiny_llama: Path):
    """Paths and counts are others, and the rule is named by its file. An untrained policy gets 0 of
    it, so nobody is asked."""
    counts: dict[str, object] = {
        "data__train_batch_size": 2,
        "data__max_prompt_length": 64,
        "data__max_response_length": 16,
        "reward_model__model__tensor_model_parallel_size": 1,
        "reward_model__reward_vllm_rollout__tensor_model_parallel_size": 1,
        "actor_rollout_ref__actor__ppo_mini_batch_size": 2,
        "actor_rollout_ref__rollout__tensor_model_parallel_size": 1,
        "trainer__n_gpus_per_node": 1,
        "trainer__total_epochs": 1,
    }
    paths = {
        "TRAIN": place / "train.parquet",
        "RM1": tiny_llama,
        "RM2": tiny_llama,
        "POLICY": tiny_llama,
        "OUT": place / "runs" / "rider",
    }
    rule = f"custom_reward_function.path={FORK / 'rule_rider_agent_reason_v2.py'}"
    out, printed = run_typed([*changed(typed(line, **paths), **counts), rule], place)
    assert (
        "rider_reward, consistency_reward are computed where it is above 0 and count where it is 1"
        in printed
    )
    samples = read_lines(out / "samples.jsonl")
    assert len(samples) == 16  # two steps of two prompts with four responses
    assert {sample["scores"]["rule_rider_agent_reason_v2"]["status"] for sample in samples} == {
        "ok"
    }
    assert {
        sample["scores"][name]["status"]
        for sample in samples
        for name in ("rider_reward", "consistency_reward")
    } == {"skipped"}
    assert {sample["reward"] for sample in samples} == {0.0}


def test_its_judges_are_asked_and_count_where_its_rule_is_1(place: Path, tiny_llama: Path):
    """The same names score replies of known worth: rule 1, rule 0.1 (another solution), no JSON."""
    other = json.dumps({**REPLY, "ResponseSolution": "申诉通过"}, ensure_ascii=False)
    write_rows(place / "rows.parquet", [row(0, responses=[TRUTH, other, "您好"])], overwrite=True)
    command = [
        sys.executable, "-m", "rmrl.main_score", f"data.files={place / 'rows.parquet'}", f"out={place / 'scored.jsonl'}",
        "reward_model.enable=True", "reward_model.reward_function=[rider_reward,consistency_reward]",
        f"reward_model.model.path=[{tiny_llama},{tiny_llama}]", "reward_model.reward_weight=[0.3,0.5]",
        "reward_model.reward_combine_func=[add,add]", "reward_model.reward_model_type=grm",
        "reward_model.reward_vllm_rollout.temperature=[0.7,0.7]", "reward_model.reward_vllm_rollout.rollout_response_length=8",
        f"custom_reward_function.path={FORK / 'rule_rider_agent_reason_v2.py'}", "reward.engine.name=hf", "trainer.device=cpu",
        "reward.max_missing=1.0",
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": import_path(REPOSITORY), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        command,
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (scored,) = read_lines(place / "scored.jsonl")
    rules = scored["score_rule_rider_agent_reason_v2"]
    judges = [scored["score_rider_reward"], scored["score_consistency_reward"]]
    assert rules == [1.0, 0.1, 0.0]
    statuses = [scored["status_rider_reward"], scored["status_consistency_reward"]]
    for status in statuses:
        assert "skipped" not in status[:2]
        assert status[2] == "skipped"
    assert scored["reward"][1:] == pytest.approx([0.1, 0.0])
    if None in (
        judges[0][0],
        judges[1][0],
    ):  # random weights write what they write; without a verdict the row has no reward
        assert scored["reward"][0] is None
    else:
        assert scored["reward"][0] == pytest.approx(1.0 + 0.3 * judges[0][0] + 0.5 * judges[1][0])
