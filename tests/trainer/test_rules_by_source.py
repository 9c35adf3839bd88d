"""A command line that names no reward gets the rules of its rows' data_source, or is told which
source has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmrl.config.load import shipped
from rmrl.config.schema import Config
from rmrl.data.write import write_rows
from rmrl.errors import ConfigError
from rmrl.trainer.rules_by_source import RULES, choose_rules


def config_of(folder: Path, train: list[str], val: list[str] | None = None) -> Config:
    config = Config()
    for split, sources in (("train", train), ("val", val or [])):
        if sources:
            path = folder / f"{split}.parquet"
            write_rows(
                path,
                [{"prompt": "1+1?", "data_source": source} for source in sources],
                overwrite=True,
            )
            setattr(config.data, f"{split}_files", str(path))
    return config


def test_one_rule_for_all_rows(tmp_path: Path):
    config = config_of(tmp_path, ["openai/gsm8k", "openai/gsm8k"], ["openai/gsm8k"])
    assert choose_rules(config) == [
        "no reward is named: rows of openai/gsm8k are scored by the rule gsm8k"
    ]
    assert (config.reward.models, config.reward.by_source) == (["gsm8k"], {})


def test_two_sources_have_a_rule_each(tmp_path: Path):
    config = config_of(tmp_path, ["openai/gsm8k"], ["HuggingFaceH4/MATH-500"])
    assert len(choose_rules(config)) == 2
    assert config.reward.models == []
    assert config.reward.by_source == {
        "openai/gsm8k": {"models": ["gsm8k"]},
        "HuggingFaceH4/MATH-500": {"models": ["math_verify"]},
    }


@pytest.mark.parametrize("source", ["math_dapo", "math", "aime2024", "aime_2025", "numina_cn_k12"])
def test_sources_of_the_dapo_recipe_and_numina(tmp_path: Path, source: str):
    config = config_of(tmp_path, ["math_dapo"], [source])
    choose_rules(config)
    assert config.reward.models == ["math_verify"]


def test_sources_of_search_r1(tmp_path: Path):
    config = config_of(tmp_path, ["searchR1_nq"], ["searchR1_hotpotqa"])
    choose_rules(config)
    assert config.reward.models == ["exact_match"]


def test_a_source_without_a_rule_is_named(tmp_path: Path):
    config = config_of(tmp_path, ["openai/gsm8k", "mine", ""])
    with pytest.raises(
        ConfigError,
        match=r"data_source \(none\), mine have no rule of their own .*reward\.models=\[code\]",
    ):
        choose_rules(config)


def test_a_named_reward_is_left_alone_and_nothing_is_read(tmp_path: Path):
    config = Config()
    assert choose_rules(config) == []
    config.data.train_files = str(tmp_path / "gone.parquet")
    config.reward.models = ["mine"]
    assert choose_rules(config) == []
    assert config.reward.models == ["mine"]


def test_every_rule_is_shipped():
    assert [
        name
        for name in RULES.values()
        if not (shipped("reward_functions") / f"{name}.py").is_file()
    ] == []
