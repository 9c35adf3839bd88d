"""A real job in which the policy judges beside a rule and beside its own first checkpoint: real Ray,
real vLLM, real FSDP."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.trainer.job import Job


def test_the_policy_and_its_reference_agree_until_it_has_learned(
    tmp_path: Path, tiny_llama: Path, tiny_reward_llama: Path
) -> None:
    job = Job(folder=tmp_path, policy=tiny_llama, scalar=tiny_reward_llama).prepare()
    entries = "score_tokens: {a: 1, b: 0}"
    code, text = job.run(
        "run",
        reward__models="[letters,self,first]",
        reward__weights="[1.0,0.5,0.0]",
        **{
            "reward.specs.self": f"{{path: policy, {entries}}}",
            "reward.specs.first": f"{{path: reference, {entries}, engine: {{max_model_len: 1024}}}}",
            "reward.engine.dtype": "float32",
            "actor_rollout_ref.rollout.max_model_len": 1024,
            "data.val_files": job.folder / "train.parquet",
            "trainer.test_freq": 3,
            "trainer.val_before_train": False,
        },
    )
    assert code == 0, text[-3000:]
    assert "the policy (" in text
    lines = job.lines("run")
    assert [line["score/self/missing"] for line in lines if "score/self/missing" in line] in (
        [], [0.0] * 3,
    )  # fmt: skip
    differences: dict[int, list[float]] = {}
    for line in job.lines("run", "samples.jsonl"):
        scores = {name: entry["score"] for name, entry in line["scores"].items()}
        assert scores["self"] is not None, json.dumps(line["scores"]["self"])
        differences.setdefault(line["step"], []).append(abs(scores["self"] - scores["first"]))
    # the responses of step 1 are judged by the weights that both begin with
    assert max(differences[1]) < 1e-3
    assert max(differences[3]) > 1e-3
    assert lines[-1]["val/self"] != pytest.approx(lines[-1]["val/first"], abs=1e-4)
    assert lines[0]["engine/self/loads"] == 1
    # counted with the next batch, as it happens after a batch is scored
    assert (lines[1]["engine/self/sleeps"], lines[1]["engine/self/wakes"]) == (1, 1)
