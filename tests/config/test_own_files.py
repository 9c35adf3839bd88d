"""A user's own configuration files, --config-dir and reward=path/to/section.yaml: every command ends
with them as without them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmrl import (
    main_calibrate,
    main_check,
    main_compare,
    main_eval,
    main_ppo,
    main_score,
    main_serve,
)
from rmrl.config.load import compose_config
from rmrl.config.plain_checks import look_up
from rmrl.config.schema import Config, EvalConfig, ScoreConfig, ServeConfig
from rmrl.errors import ConfigError
from rmrl.offline.rewards import Rewards
from tests.inputs import read_lines, write_lines

GOOD = "models: [gsm8k]\nrule_workers: 1\n"
ROW = {"prompt": "2 + 2?", "response": "#### 4", "reward_model": {"ground_truth": "4"}}
ENTRIES: dict[str, Callable[[list[str]], int]] = {
    "train": main_ppo.main,
    "score": main_score.main,
    "serve": main_serve.main,
    "eval": main_eval.main,
    "calibrate": main_calibrate.main,
    "check": main_check.main,
}
WAYS = {
    "--config-dir": ["--config-dir", "conf", "reward=mine"],
    "--config-dir with a plus": ["--config-dir=conf", "+reward=mine"],
    "a file": ["reward=conf/reward/mine.yaml"],
    "a file without a key": ["conf/reward/mine.yaml"],
}
DATA = {"train": "data.train_files", "serve": "out"}
"""Command -> the key of its data, where it is not data.files."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with conf/reward/mine.yaml, rows and one configuration of each sort."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf" / "reward").mkdir(parents=True)
    (tmp_path / "conf" / "reward" / "mine.yaml").write_text(GOOD)
    (tmp_path / "conf" / "job.yaml").write_text(
        "defaults: [score, reward: mine, _self_]\ntrainer: {device: cpu}\n"
    )
    (tmp_path / "conf" / "plain.yaml").write_text("trainer: {device: cpu}\n")
    write_lines(tmp_path / "rows.jsonl", [ROW])
    return tmp_path


def sentences(text: str) -> list[str]:
    lines = text.splitlines()
    return lines[lines.index("") + 1 :] if "" in lines else lines


@pytest.mark.parametrize("command", ENTRIES)
def test_an_error_after_the_configuration_is_read_is_the_same_in_every_way(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reward that does not exist, and data that do not exist: found after composing."""
    key = DATA.get(command, "data.files")
    endings: list[tuple[int, list[str]]] = []
    for way in (["reward.models=[gsm8k]", "reward.rule_workers=1"], *WAYS.values()):
        words = [*way, f"{key}=none.jsonl", "trainer.device=cpu"]
        if command == "train":
            words.append("actor_rollout_ref.model.path=none")
        if command == "calibrate":
            words += ["calibrate.label=good", "out=cal"]
        if command == "eval":
            words += ["eval.format=pairs", "out=report"]
        if command == "serve":
            words = [*way, "serve.port=0", "reward.models=[gsm8]", "trainer.device=cpu"]
        code = ENTRIES[command](words)
        text = capsys.readouterr().err
        assert "Traceback" not in text
        endings.append((code, sentences(text)))
    assert endings[0][0] in (2, 6)
    assert endings[1:] == [endings[0]] * len(WAYS)
    assert not list(folder.glob("*.log"))


@pytest.mark.parametrize("way", WAYS)
def test_a_section_scores_in_every_way(way: str, folder: Path) -> None:
    words = [*WAYS[way], "data.files=rows.jsonl", "out=scored.jsonl"]
    assert main_score.main(words) == 0
    assert [row["reward"] for row in read_lines(folder / "scored.jsonl")] == [1.0]
    assert {path.name for path in folder.iterdir()} == {
        "conf", "rows.jsonl", "scored.jsonl", "scored.jsonl.log", "scored.jsonl.summary.json",
    }  # fmt: skip
    assert main_score.main(words) == 6  # scored.jsonl exists


@pytest.mark.parametrize("way", WAYS)
def test_keys_of_the_command_line_win_wherever_they_stand(way: str) -> None:
    for words in ([*WAYS[way], "reward.rule_workers=3"], ["reward.rule_workers=3", *WAYS[way]]):
        config = compose_config(words)
        assert (config.reward.models, config.reward.rule_workers) == (["gsm8k"], 3)


def test_check_takes_the_files_of_scoring_and_of_training(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (WAYS["--config-dir"], ["--config-dir", "conf", "--config-name", "job"]):
        assert main_check.main([*words, "data.files=rows.jsonl"]) == 0
        assert "--- reward: 1" in capsys.readouterr().out
    (folder / "conf" / "run.yaml").write_text(
        "defaults: [ppo_trainer, reward: mine, _self_]\n"
        "data: {train_files: none.jsonl}\nactor_rollout_ref: {model: {path: none}}\n"
    )
    assert main_check.main(["-cd", "conf", "-cn", "run"]) == 2
    printed = capsys.readouterr().err
    assert "data.train_files: none.jsonl does not exist" in printed
    assert "actor_rollout_ref.model.path: 'none' is not a folder" in printed


def test_compare_takes_sections_by_file_and_by_name(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rest = ["data=rows.jsonl", "trainer.device=cpu"]
    for number, words in enumerate(
        (
            ["--config-dir", "conf", "mine", "conf/reward/mine.yaml"],
            ["reward=conf/reward/mine.yaml", "reward=conf/reward/mine.yaml"],
        )
    ):
        assert main_compare.main([*words, *rest, f"out=report{number}"]) == 0
    bare = ["rows.jsonl", "conf/reward/mine.yaml", "conf/reward/mine.yaml", *rest[1:]]
    assert main_compare.main([*bare, "out=bare"]) == 0
    assert main_compare.main(["gsm8k", "math_verify", *rest, "out=names"]) == 0
    capsys.readouterr()
    assert main_compare.main(["reward=no.yaml", "conf/reward/mine.yaml", *rest, "out=x"]) == 2
    assert "no.yaml does not exist; give a YAML file" in capsys.readouterr().err


BARE: dict[str, tuple[type, list[str], dict[str, Any]]] = {
    "data": (ScoreConfig, ["rows.jsonl"], {"data.files": ["rows.jsonl"]}),
    "many files, as a shell lists them": (
        ScoreConfig,
        ["b ü's.jsonl", "max_rows.jsonl", "data.max_rows=3", "c,d.csv", "hf://a/b/test"],
        {"data.files": ["b ü's.jsonl", "max_rows.jsonl", "c,d.csv", "hf://a/b/test"]},
    ),
    "training": (Config, ["rows.parquet"], {"data.train_files": ["rows.parquet"]}),
    "training, with a key": (Config, ["data=rows.csv"], {"data.train_files": "rows.csv"}),
    "a section": (ScoreConfig, ["conf/reward/mine.yaml"], {"reward.models": ["gsm8k"]}),
    "a rule, and data": (
        EvalConfig,
        ["./rules.py:short", "./rows.jsonl"],
        {"data.files": ["./rows.jsonl"], "reward.models": ["short"]},
    ),
    "a model, two rules, and data": (
        ScoreConfig,
        ["./rm", "a.py", "b.py:f", "rows.jsonl", "reward.weights=[1,2,3]"],
        {"data.files": ["rows.jsonl"], "reward.models": ["./rm", "a", "f"]},
    ),
    "a text that no file can be called": (
        ScoreConfig,
        [f"reward.specs.a.rubric={'long' * 99}", "rows.jsonl"],
        {"data.files": ["rows.jsonl"], "reward.specs": {"a": {"rubric": "long" * 99}}},
    ),
    "a service": (ServeConfig, ["conf/reward/mine.yaml"], {"reward.models": ["gsm8k"]}),
}
"""Command, words and what they set."""


@pytest.mark.parametrize("words", BARE)
@pytest.mark.usefixtures("folder")
def test_files_need_no_key(words: str) -> None:
    root, line, settings = BARE[words]
    Path("rm").mkdir()
    Path("rm/config.json").touch()
    config: Any = compose_config(line, root)
    assert {key: look_up(config, key) for key in settings} == settings


BARE_TWICE = {
    "rows.jsonl data=other.jsonl": "data=other.jsonl says the same as the words without a key (rows.jsonl); give one list, data.files=[rows.jsonl,...]",
    "a.csv b.csv data.files=[c.csv]": "data.files=[c.csv] says the same as the words without a key (a.csv, b.csv)",
    "rules.py reward=mine.yaml": "reward=mine.yaml says the same as the words without a key (rules.py); give one list, reward.models=[rules.py,...]",
    "rules.py mine.yaml": "reward=mine.yaml says the same",
    "r.py reward.models=[gsm8k] x.csv": "reward.models=[gsm8k] says the same",
    "reward=conf/reward/mine.yaml conf/reward/mine.yaml": "there is a section of rewards already; give one",
}


@pytest.mark.parametrize("line", BARE_TWICE)
@pytest.mark.usefixtures("folder")
def test_files_beside_a_key_for_them_are_a_sentence(line: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(BARE_TWICE[line])):
        compose_config(line.split(), ScoreConfig)


def test_python_takes_the_path_of_a_section(folder: Path) -> None:
    path = folder / "conf" / "reward" / "mine.yaml"
    configs: list[Any] = [str(path), path, {"reward": str(path)}, {"reward": path, "columns": []}]
    for config in (*configs, {"reward": "gsm8k"}):
        with Rewards(config) as rewards:
            assert rewards.checked.config.reward.models == ["gsm8k"]
    (folder / "whole.yaml").write_text(f"reward: {path}\ntrainer: {{device: cpu}}\n")
    with Rewards("whole.yaml") as rewards:
        assert rewards.checked.config.reward.rule_workers == 1
    with pytest.raises(ConfigError, match=r"none.yaml does not exist; give a YAML file"):
        Rewards({"reward": "none.yaml"})


BROKEN = {
    "modls: [gsm8k]\nrule_workers: 1\n": "conf/reward/bad.yaml: reward.modls: no key 'modls' in reward; did you mean 'models'",
    "models: [gsm8k\n": "conf/reward/bad.yaml cannot be read as YAML",
    "- gsm8k\n": "conf/reward/bad.yaml holds list; need a section `reward` as a mapping",
    "": "conf/reward/bad.yaml is empty; need a section `reward`",
    "specs: helpful\n": "conf/reward/bad.yaml: reward.specs=helpful: give names with their values",
    "rule_workers: many\n": "conf/reward/bad.yaml: reward.rule_workers: Value 'many'",
    "reward: 3\n": "conf/reward/bad.yaml: `reward` is 3; need a mapping",
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_file_is_named_with_what_is_wrong(text: str, folder: Path) -> None:
    (folder / "conf" / "reward" / "bad.yaml").write_text(text)
    words = (["reward=conf/reward/bad.yaml"], ["--config-dir", "conf", "reward=bad"])
    for overrides in words[: 1 + (text not in ("", "reward: 3\n"))]:
        with pytest.raises(ConfigError) as error:
            compose_config([*overrides], ScoreConfig)
        assert BROKEN[text] in error.value.problems[0]
    with pytest.raises(ConfigError) as error:
        compose_config(["reward=conf/reward/bad.yaml", "trainer.sed=1"], Config)
    assert len(error.value.problems) == 2  # all of them at once


MISTYPED = {
    "reward=mien --config-dir conf": "reward=mien: nothing named 'mien'; did you mean 'mine'",
    "reward=mine": "nothing named 'mine'; known: (none); give a file, reward=path/to/section.yaml, or a folder with reward/mine.yaml",
    "reward=none.yaml": "none.yaml does not exist; give a YAML file with a section `reward`",
    "reward=mine --config-dir": "--config-dir: its value is missing; give --config-dir=<value>",
    "reward=mine --config-dir --cfg job": "--config-dir: its value is missing; give",
    "--config-dir nowhere reward=mine": "--config-dir=nowhere: no such folder",
    "--config-dir conf --config-name jb": "--config-name=jb: no such file in conf; did you mean 'job'",
    "--config-dir conf --config-name plain": "--config-name=plain starts from none of rmrl's configurations; this command needs a file with the line defaults: [ppo_trainer, _self_]",
    "--config-dir conf --config-name job": "--config-name=job starts from score; this command needs",
    "models=[gsm8k]": "models: no key 'models' in the top level; did you mean reward.models?",
    "gsm8k": "gsm8k: its value is missing, gsm8k=<value> (a reward of this name is reward.models=[gsm8k])",
    "trainer.seed": "trainer.seed: its value is missing, trainer.seed=<value>; overrides look like",
    "--data rows.jsonl": "--data: no flag of this command; keys are given as section.key=value",
}


@pytest.mark.parametrize("line", MISTYPED)
def test_a_mistyped_name_is_a_sentence(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main_ppo.main(line.split()) == 2
    printed = capsys.readouterr().err
    assert MISTYPED[line] in printed
    assert "Traceback" not in printed


def test_small_numbers_of_a_file_are_numbers(folder: Path) -> None:
    """1e-6 is a text for YAML 1.1, and a number for the command line and for Hydra."""
    text = "models: [gsm8k]\nspecs: {gsm8k: {transform: {kind: clip, low: 1e-6, high: 2E+3}}}\n"
    (folder / "small.yaml").write_text(text)
    (folder / "conf" / "reward" / "small.yaml").write_text(text)
    values = {"kind": "clip", "low": 1e-6, "high": 2000.0}
    for words in (["reward=small.yaml"], ["--config-dir", "conf", "reward=small"]):
        assert compose_config(words).reward.specs["gsm8k"]["transform"] == values


def test_the_section_of_a_run_is_taken_from_its_config(folder: Path) -> None:
    (folder / "config.yaml").write_text("reward: {models: [gsm8k]}\ntrainer: {seed: 7}\n")
    config = compose_config(["reward=config.yaml"])
    assert (config.reward.models, config.trainer.seed) == (["gsm8k"], Config().trainer.seed)


def test_a_sweep_ends_with_the_code_of_its_first_error(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--multirun", *WAYS["--config-dir"], "data.files=rows.jsonl,none.jsonl"]
    assert main_score.main([*words, "out=a.jsonl", "overwrite=true"]) == 6
    printed = capsys.readouterr().err
    assert "Traceback" not in printed
    assert "DataError: data.files: none.jsonl does not exist" in printed
    assert [row["reward"] for row in read_lines(folder / "a.jsonl")] == [1.0]
    assert not list(folder.rglob("load.log"))


def test_the_composed_configuration_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main_score.main(["--cfg", "job", "--package", "reward", *WAYS["--config-dir"]]) == 0
    assert "- gsm8k" in capsys.readouterr().out
    assert main_score.main(["--cfg", "job", "trainer.max_proc=abc"]) == 2
