"""The judge of the watched run is made by `rmrl train-rm`, from the tiny policy."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from tests.examples.test_watch import script


def test_a_judge_is_made_of_a_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))  # the script adds to the path, which is set back
    make_judge = script("make_judge")
    make_policy = importlib.import_module("make_tiny_policy")
    policy, out = tmp_path / "policy", tmp_path / "judge"
    model = make_policy.tiny_llama(
        make_policy.VOCAB_SIZE, max_length=make_policy.MAX_LENGTH, seed=0
    )
    make_policy.save(model, make_policy.character_tokenizer(), policy)
    folders = ["--policy", str(policy), "--data", str(tmp_path / "data"), "--out", str(out)]
    assert make_judge.main([*folders, "trainer.total_training_steps=2"]) == 0
    scores = capsys.readouterr().out.split("mean score of answers to held-out questions:")[1]
    offsets = [int(line.split()[1].rstrip(":")) for line in scores.strip().splitlines()]
    assert offsets == list(make_judge.OFFSETS)
    assert (out / "reward.yaml").exists()
