"""`rmrl show`: conditions, selection, and what a page holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmrl.data.write import write_rows
from rmrl.errors import ConfigError, DataError
from rmrl.main_score import main as score
from rmrl.main_show import main
from rmrl.offline.conditions import condition
from rmrl.offline.scored_responses import page, responses, select
from tests.inputs import rule, write_lines

ROW = {"judge": 0.5, "rule": 1.0, "reward": 0.75, "status_judge": "ok", "empty": None, "gpt-4": 2.0}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("judge != rule", True),
        ("judge == rule", False),
        ("abs(judge - rule) > 0.4", True),
        ("reward < 0.5 or status_judge == 'ok'", True),
        ("not reward < 0.5 and rule >= 1", True),
        ("0 < judge <= 0.5", True),
        ("empty < 1", False),
        ("empty == None", True),
        ("empty is None", True),
        ("empty + 1 > 0", False),
        ("judge / (rule - 1) > 0", False),
        ("'o' in status_judge", True),
        ("judge < 'a'", False),
        ('column["gpt-4"] == 2', True),
        ("-judge < 0", True),
    ],
)
def test_conditions(text: str, holds: bool) -> None:
    assert bool(condition(text)(ROW)) is holds


@pytest.mark.parametrize(
    "text",
    [
        "judge.__class__",
        "__import__('os')",
        "open('x')",
        "[1, 2]",
        "judge if rule else 1",
        "lambda: 1",
        "judge =",
        "",
        "judge ** 9",
        "abs(1, 2)",
    ],
)
def test_what_is_no_condition_is_refused_and_never_run(text: str) -> None:
    with pytest.raises(ConfigError, match="--where"):
        condition(text)(ROW)


def test_an_unknown_column_is_named() -> None:
    with pytest.raises(ConfigError, match=r"no column 'jugde'; did you mean 'judge'"):
        condition("jugde > 0")(ROW)


def sample(number: int, rule: float, judge: float | None) -> dict[str, Any]:
    verdict = {"detail": "", "extra": {}, "rendered": "Rate it.", "raw": "Score: 1"}
    reward = None if judge is None else rule + judge
    return {
        "step": 1 + number // 2,
        "prompt_id": f"train.parquet:{number}",
        "ground_truth": "7",
        "messages": [{"role": "user", "content": "3 + 4?"}],
        "response": f"answer {number}",
        "scores": {
            "rule": {**verdict, "score": rule, "status": "ok"},
            "judge": {
                **verdict,
                "score": judge,
                "status": "ok" if judge is not None else "unparseable",
            },
        },
        "reward": reward,
    }


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    rows = [
        sample(0, 1.0, 1.0),
        sample(1, 0.0, 1.0),
        sample(2, 1.0, None),
        sample(3, 0.0, 0.5),
        sample(4, 1.0, 0.25),
    ]
    write_lines(tmp_path / "samples.jsonl", rows)
    return tmp_path / "samples.jsonl"


def chosen(path: Path, **options: Any) -> list[str]:
    settings: dict[str, Any] = {
        "where": None,
        "by": "reward",
        "worst": None,
        "best": None,
        "count": 5,
        **options,
    }
    if settings["where"]:
        settings["where"] = condition(settings["where"])
    return [item.response for item in select(responses(path), **settings)]


def test_worst_and_best_leave_out_responses_without_a_reward(samples: Path) -> None:
    """Rewards: 2, 1, none, 0.5, 1.25."""
    assert chosen(samples, worst=2) == ["answer 3", "answer 1"]
    assert chosen(samples, best=2) == ["answer 0", "answer 4"]
    assert chosen(samples, best=9) == ["answer 0", "answer 4", "answer 1", "answer 3"]
    assert chosen(samples, worst=1, by="judge") == ["answer 4"]


def test_conditions_choose_rows_of_a_run(samples: Path) -> None:
    assert chosen(samples, where="judge != rule and status_judge == 'ok'") == [
        "answer 1",
        "answer 3",
        "answer 4",
    ]
    assert chosen(samples, where="status_judge == 'unparseable'") == ["answer 2"]
    assert chosen(samples, where="step == 2", count=1) == ["answer 2"]


def test_a_scored_file_with_lists_is_one_response_each(tmp_path: Path) -> None:
    row = {
        "prompt": "3 + 4?",
        "responses": ["7", "8"],
        "reward": [1.0, 0.0],
        "score_rule": [1.0, 0.0],
        "status_rule": ["ok", "ok"],
        "detail_rule": ["", "wrong"],
    }
    write_rows(tmp_path / "scored.parquet", [row], overwrite=True)
    items = list(responses(tmp_path / "scored.parquet"))
    assert [(item.response, item.columns["rule"], item.columns["reward"]) for item in items] == [
        ("7", 1.0, 1.0),
        ("8", 0.0, 0.0),
    ]
    assert "--- rule: 0  wrong" in page(items[1])


def test_a_file_that_was_scored_twice_shows_the_rewards_of_the_last_time(tmp_path: Path) -> None:
    functions = tmp_path / "functions"
    functions.mkdir()
    (functions / "first.py").write_text(rule("return 0.25"))
    (functions / "second.py").write_text(rule("return 0.75"))
    rows = write_lines(tmp_path / "rows.jsonl", [{"prompt": "p", "response": "r"}])
    once, twice = tmp_path / "once.jsonl", tmp_path / "twice.jsonl"
    more = [f"reward.functions_dir={functions}", "reward.rule_workers=1", "trainer.device=cpu"]
    assert score([f"data.files={rows}", f"out={once}", "reward.models=[first]", *more]) == 0
    assert score([f"data.files={once}", f"out={twice}", "reward.models=[second]", *more]) == 0
    (item,) = responses(twice)
    assert list(item.verdicts) == ["second"]
    assert item.columns["score_first"] == 0.25
    assert condition("score_first < second")(item.columns)
    # statistics that are of another file hide nothing
    row = {"prompt": "p", "response": "r", "reward": 1.0, "score_other": 1.0, "status_other": "ok"}
    write_lines(twice, [row])
    (item,) = responses(twice)
    assert list(item.verdicts) == ["other"]
    write_lines(twice, [row | {"score_second": 0.5, "status_second": "ok"}])
    # without the statistics beside it, a file does not say which are which
    (tmp_path / "twice.jsonl.summary.json").unlink()
    (item,) = responses(twice)
    assert list(item.verdicts) == ["other", "second"]


def test_a_tool_call_stands_behind_its_turn(tmp_path: Path) -> None:
    calls = [{"id": "c1", "function": {"name": "add", "arguments": "{}"}}]
    turns = [
        {"role": "assistant", "content": "I ask.", "tool_calls": calls},
        {"role": "tool", "content": "7"},
        {"role": "assistant", "content": "It is 7."},
    ]
    row = {"prompt": "3 + 4?", "response": turns, "reward": 1.0}
    (item,) = responses(write_lines(tmp_path / "scored.jsonl", [row]))
    assert item.prompt == (
        "[user] 3 + 4?\n[assistant] I ask.\n"
        'call: {"id": "c1", "function": {"name": "add", "arguments": "{}"}}\n[tool] 7'
    )
    assert item.response == "It is 7."


def test_a_page_holds_all_that_is_known_and_no_control_characters(samples: Path) -> None:
    text = page(list(responses(samples))[2])
    for words in (
        "samples.jsonl row 2 (line 3)",
        "[user] 3 + 4?",
        "answer 2",
        "--- judge: none (unparseable)",
        "  Rate it.",
        "reward: none",
    ):
        assert words in text


def test_long_texts_are_shortened_unless_full(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text(
        json.dumps({"prompt": "?", "response": "x" * 5000 + "\x1b[2J", "reward": 1.0}) + "\n"
    )
    (item,) = responses(path)
    assert "(3804 characters; --full displays them)" in page(item)
    assert "x" * 5000 in page(item, full=True)
    assert "\x1b" not in page(item, full=True)


def test_a_file_without_scores_says_what_is_needed(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "?", "response": "x"}\n')
    with pytest.raises(DataError, match=r"only the columns prompt, response; need `reward`"):
        next(responses(path))


def test_the_command(samples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(samples), "--where", "judge != rule", "--worst", "1"]) == 0
    assert "answer 3" in capsys.readouterr().out
    assert main([str(samples), "--where", "judge > 99"]) == 0
    assert capsys.readouterr().out == "no response matches\n"
    assert main([str(samples), "--columns"]) == 0
    assert "status_judge" in capsys.readouterr().out.splitlines()
    assert main([str(samples), "--where", "juge > 9"]) == 2
    assert main([str(samples.parent / "none.jsonl")]) == 6
    assert main([str(samples), "--worst", "1", "--by", "lenght"]) == 2
    capsys.readouterr()
    for flag in ("--rows", "--worst", "--best"):
        assert main([str(samples), flag, "-1"]) == 2
        assert "'-1' is not a number of rows" in capsys.readouterr().err
    assert main([]) == 2
    assert "data.columns" not in capsys.readouterr().err.splitlines()[-1]


def test_a_column_that_some_rows_lack_counts_as_missing(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    rows = [{"response": "a", "reward": 1.0, "note": "x"}, {"response": "b", "reward": 1.0}]
    write_lines(path, rows)
    assert chosen(path, where="note == None") == ["b"]
