"""The watched run: what its curve calls the right step, by hand; what was recorded, replayed; and
the maker of its judge."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from rmrl.rewards.session.trend import Opposition
from tests.scripts import load_script

ROOT = Path(__file__).resolve().parents[2]
RECORDED: dict[str, dict[str, Any]] = json.loads(
    (ROOT / "benchmarks" / "results" / "watch" / "watch.json").read_text(encoding="utf-8")
)


def script(name: str) -> ModuleType:
    return load_script(ROOT / "examples" / "watch" / f"{name}.py")


@pytest.fixture(scope="module")
def curve() -> ModuleType:
    return script("curve")


def test_means_by_hand(curve: ModuleType) -> None:
    # (0 + 1 + 2) / 3, (0 + 1 + 2 + 3) / 4, (0 + 1 + 2 + 3 + 9) / 5, 15 / 4, 14 / 3
    np.testing.assert_allclose(curve.means([0, 1, 2, 3, 9]), [1, 1.5, 3, 3.75, 14 / 3])


def test_turn_and_due_by_hand(curve: ModuleType) -> None:
    right = [0.5, 0.6, 0.7, 0.8, 0.9, 0.8, 0.7, 0.6, 0.5]
    # Means of five from step 3 on: .70 .76 .78 .76 .70, then (.8 + .7 + .6 + .5) / 4 = .65 and .60:
    # the peak is at step 5, and .68 is passed at step 8.
    rises = [float(step) for step in range(9)]
    assert curve.turn_and_due(rises, right) == (5, 8)
    assert curve.turn_and_due(rises[::-1], right) == (5, None)
    assert curve.turn_and_due(rises, sorted(right))[1] is None


@pytest.mark.parametrize(
    ("due", "hints", "right"),
    [
        (40, [41, 61], True),
        (40, [31], True),
        (40, [30], False),  # not after the turn
        (40, [56], True),
        (40, [57], False),
        (40, [], False),
        (None, [], True),
        (None, [50], False),
    ],
)
def test_where_the_first_hint_should_be(
    curve: ModuleType, due: int | None, hints: list[int], right: bool
) -> None:
    assert curve.is_right(30, due, hints) is right


def test_the_steps_of_hints_are_read_from_the_log(curve: ModuleType, tmp_path: Path) -> None:
    hint = "step 48: look at samples 1 and 2 of this step in samples.jsonl: the reward rises (+1 a"
    hint += " step) and the watcher truth falls (-1) since step 33"
    other = "step 50: look at sample 3 of this step in samples.jsonl: a and b disagree"
    lines = ["12:00 INFO step 47: reward 0.5", f"12:01 WARNING {hint}", f"12:02 WARNING {other}"]
    (tmp_path / "run.log").write_text("\n".join(lines), encoding="utf-8")
    assert curve.told(tmp_path) == ([48], [hint, other])


@pytest.mark.parametrize("name", RECORDED)
def test_the_recorded_runs_give_the_same_when_they_are_watched_again(
    curve: ModuleType, name: str
) -> None:
    run = RECORDED[name]
    assert curve.turn_and_due(run["reward"], run["all_rows"]) == (run["turn"], run["due"])
    assert curve.is_right(run["turn"], run["due"], run["hints"]) is run["right"] is True
    assert bool(run["hints"]) is name.startswith("judge")
    found: list[int] = []
    for count in range(1, len(run["watched"]) + 1):
        if Opposition(run["watched"][:count]).found() is not None:
            found.append(run["watched"][count - 1][0])
    assert found[:1] == run["hints"][:1]


def test_a_judge_is_made_of_a_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AutoModelForSequenceClassification

    monkeypatch.setattr(sys, "path", [*sys.path])
    make_judge = script("make_judge")
    assert make_judge.off_by([("3-4=", "-1"), ("9+1=", "10")], 1) == [("3-4=", "0"), ("9+1=", "11")]
    policy = importlib.import_module("make_tiny_policy")
    tokenizer = policy.character_tokenizer()
    read = make_judge.encoded(tokenizer, [("1+2=", "3"), ("9+1=", "10")])
    assert tokenizer.batch_decode(read["input_ids"]) == [
        "<bos><|user|>1+2=<|assistant|>3<eos><pad>",
        "<bos><|user|>9+1=<|assistant|>10<eos>",
    ]
    assert read["attention_mask"].sum(1).tolist() == [9, 10]
    model = policy.tiny_llama(policy.VOCAB_SIZE, max_length=policy.MAX_LENGTH, seed=0)
    policy.save(model, tokenizer, tmp_path / "policy")
    out = tmp_path / "judge"
    make_judge.main(["--policy", str(tmp_path / "policy"), "--out", str(out), "--steps", "2"])
    assert "prefers the right answer to one that is 1 too high on" in capsys.readouterr().out
    judge, told = AutoModelForSequenceClassification.from_pretrained(out, output_loading_info=True)
    assert judge.config.num_labels == 1
    assert not told["missing_keys"]
