"""Rewards named by their functions and these functions' files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmrl import main_compare, main_score
from rmrl.config.load import compose_config
from rmrl.config.schema import RewardConfig, ScoreConfig
from rmrl.config.typed import config_of
from rmrl.errors import ConfigError
from rmrl.offline.rewards import Rewards
from tests.inputs import read_lines, write_lines

NAMED: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "a file": ("[my_rule.py]", ["my_rule"], {"my_rule": {"function": "my_rule.py"}}),
    "not in a list": ("a/my_rule.py", ["my_rule"], {"my_rule": {"function": "a/my_rule.py"}}),
    "a function": (
        "[gsm8k,./r.py:short]",
        ["gsm8k", "short"],
        {"short": {"function": "./r.py:short"}},
    ),
    "as pytest names it": ("[r.py::f]", ["f"], {"f": {"function": "r.py:f"}}),
    "the usual function": (
        "[r.py:compute_score]",
        ["r"],
        {"r": {"function": "r.py:compute_score"}},
    ),
    "two of one file": (
        "[r.py:f,r.py:g]",
        ["f", "g"],
        {"f": {"function": "r.py:f"}, "g": {"function": "r.py:g"}},
    ),
    "a name that is taken": ("[gsm8k,other/gsm8k.py]", ["gsm8k", "other/gsm8k.py"], {}),
    "no file": ("[mylab.rules:short,./model]", ["mylab.rules:short", "./model"], {}),
}


@pytest.mark.parametrize("case", NAMED)
def test_a_reward_is_named_after_its_file(case: str):
    typed, models, specs = NAMED[case]
    words = [f"reward.models={typed}"]
    for reward in (compose_config(words).reward, compose_config(words, ScoreConfig).reward):
        assert (reward.models, reward.specs) == (models, specs)
    again = config_of({"reward": {"models": models, "specs": specs}}, ScoreConfig).reward
    assert (again.models, again.specs) == (models, specs)


def test_entries_and_sources_go_by_the_name():
    reward = compose_config(
        [
            "reward.models=[r.py]",
            "reward.specs.r.kind=rule",
            "reward.specs.other.function=else.py",
            "reward.by_source={math: {models: [m.py, other.py, r.py, x/gsm8k.py]}, b: 3, "
            "c: {models: [gsm8k, m.py, [a], {b: 1}]}}",
            "reward.specs.gsm8k.kind=rule",
        ]
    ).reward
    assert reward.specs["r"] == {"function": "r.py", "kind": "rule"}
    # `other` is another file's name already, and `gsm8k` another reward's
    assert reward.by_source["math"] == {"models": ["m", "other.py", "r", "x/gsm8k.py"]}
    assert reward.by_source["c"] == {"models": ["gsm8k", "m", ["a"], {"b": 1}]}
    assert reward.specs["gsm8k"] == {"kind": "rule"}
    assert reward.specs["m"] == {"function": "m.py"}


def test_a_file_scores_from_the_command_line_and_from_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    Path("my rules").mkdir()
    Path("my rules/length.py").write_text(
        "def compute_score(data_source, solution_str, ground_truth):\n    return len(solution_str)\n"
        "def half(data_source, solution_str, ground_truth):\n    return len(solution_str) / 2\n"
    )
    write_lines(Path("rows.jsonl"), [{"prompt": "p", "response": "four"}])
    models = "reward.models=[my rules/length.py,my rules/length.py:half]"
    words = ["data=rows.jsonl", "out=s.jsonl", "reward.rule_workers=1", "trainer.device=cpu"]
    assert main_score.main([models, *words]) == 0
    (row,) = read_lines(Path("s.jsonl"))
    assert (row["score_length"], row["score_half"], row["reward"]) == (4.0, 2.0, 6.0)
    settings = {"models": ["my rules/length.py"], "rule_workers": 1}
    with Rewards({"reward": settings, "trainer": {"device": "cpu"}}) as rewards:
        assert rewards.score(["p"], ["four"])["score_length"] == [4.0]
    assert json.dumps(settings["models"]) == '["my rules/length.py"]'  # the caller's own


def test_a_file_is_a_section_that_names_it_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("rules.py").write_text(
        "def compute_score(data_source, solution_str, ground_truth):\n    return len(solution_str)\n"
        "def none(data_source, solution_str, ground_truth):\n    return 0\n"
    )
    write_lines(Path("rows.jsonl"), [{"prompt": "p", "response": "four"}] * 2)
    for text, model in (("rules.py", "rules"), ("rules.py::none", "none")):
        reward = compose_config([f"reward={text}"], ScoreConfig).reward
        assert reward.models == [model]
    with Rewards("rules.py") as rewards:
        assert rewards.score(["p"], ["four"])["reward"] == [4.0]
    words = ["rules.py", "rules.py:none", "data=rows.jsonl", "out=cmp", "trainer.device=cpu"]
    assert main_compare.main(words) == 0
    scores = [read_lines(Path("cmp") / f"{name}.jsonl")[0]["reward"] for name in ("a", "b")]
    assert scores == [4.0, 0.0]


def test_a_file_without_a_name_of_its_own_is_a_sentence(tmp_path: Path):
    words = {"models": ["gsm8k", str(tmp_path / "gsm8k.py")]}
    with pytest.raises(ConfigError, match=r"gsm8k.py' is a file, and needs a name of its own"):
        Rewards(words)
    assert RewardConfig(models=["r.py"]).models == ["r.py"]
