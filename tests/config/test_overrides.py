"""Words of a command line: texts and paths that Hydra's grammar reads only in quotes."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmrl.config.load import compose_config
from rmrl.config.overrides import parse
from rmrl.config.schema import ScoreConfig
from rmrl.errors import ConfigError

TEXTS = [
    "日本.jsonl",
    "it's",
    "x=y.jsonl",
    "a#b",
    "my file; v2 (final).parquet",
    "ends with a backslash é\\",
    "é'\\'",
    "<answer>&</answer>!",
    "b c",
    "C:\\rows",
    "half \"quoted\" 'text'",
    "Is it right, or wrong?",
    "Don't be rude, brief, or odd.",
    "Rate from 1 to 5: {response}",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_of_any_letters_is_a_value(text: str):
    settings, problems = parse([f"data.files={text}"])
    assert not problems
    assert settings[0].value == text
    assert compose_config([f"data={text}.csv"], ScoreConfig).data.files == f"{text}.csv"


SLIPS = {
    "a=[1, 2": "the list or mapping does not end here",
    "a=[é,b]": "token recognition error at: 'é'; overrides look like section.key=value, lists like"
    " [a,b] or, with other letters and marks, ['ü','a=b']",
    "a=b]": "extraneous input ']'",
    "a==3": "extraneous input '='",
    "a=x{y}": "mismatched input '{'",
    "a=sort(1": "no viable alternative",
    "a=later(1)": "Unknown function 'later'",
    "a='open": "token recognition error",
    "a=é${b}": "token recognition error",
    "a=é,b": "token recognition error",
    "é=3": "token recognition error",
}


@pytest.mark.parametrize("word", SLIPS)
def test_a_slip_in_another_value_stays_a_problem(word: str):
    settings, problems = parse([word])
    assert settings == []
    assert SLIPS[word] in problems[0]


def test_several_values_are_a_sweep_unless_a_file_has_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    assert not parse(["data=a,b.jsonl"])[0][0].plain
    assert not parse(["--multirun", "data=a, b.jsonl"])[0][0].plain
    with pytest.raises(ConfigError, match=r"seed=1,2: several values are a sweep, which needs"):
        compose_config(["trainer.seed=1,2"], ScoreConfig)
    Path("a,b.jsonl").touch()
    Path("x, [1] {y}.jsonl").touch()
    settings, problems = parse(["data=a,b.jsonl", "data=x, [1] {y}.jsonl", "~data", "-m"])
    assert not problems
    assert [setting.value for setting in settings] == ["a,b.jsonl", "x, [1] {y}.jsonl", None]
    assert [setting.plain for setting in settings] == [True, True, False]
