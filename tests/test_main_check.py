"""`rmrl check` as a user runs it, with the arguments of scoring and with those of training."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmrl.data.write import write_rows
from rmrl.main_check import main
from tests.inputs import write_lines

LENGTH = (
    "def compute_score(data_source, solution_str, ground_truth):\n    return len(solution_str)\n"
)


@pytest.fixture
def common(tmp_path: Path) -> list[str]:
    (tmp_path / "functions").mkdir()
    (tmp_path / "functions" / "length.py").write_text(LENGTH)
    rows = [
        {"prompt": f"q{i}", "response": ["ab", "abc"], "reward_model": {"ground_truth": "four"}}
        for i in range(3)
    ]
    write_lines(tmp_path / "rows.jsonl", rows)
    write_rows(
        tmp_path / "train.parquet",
        [{k: r[k] for k in ("prompt", "reward_model")} for r in rows] * 2,
        overwrite=False,
    )
    return [
        "reward.models=[length]",
        f"reward.functions_dir={tmp_path}/functions",
        "reward.rule_workers=1",
        "trainer.device=cpu",
    ]


def heads(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("===")]


def totals(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("--- reward")]


def test_rows_with_responses(
    tmp_path: Path, common: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*common, f"data.files={tmp_path}/rows.jsonl"]) == 0
    shown = capsys.readouterr()
    assert heads(shown.out) == ["=== rows.jsonl:0"] * 2
    assert totals(shown.out) == ["--- reward: 2", "--- reward: 3"]
    assert "length  rule" in shown.err


def test_flags_stand_anywhere(
    tmp_path: Path, common: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["--rows", "2", *common, "--response", "abcde", f"data.files={tmp_path}/rows.jsonl"])
        == 0
    )
    out = capsys.readouterr().out
    assert heads(out) == ["=== rows.jsonl:0", "=== rows.jsonl:1"]
    assert totals(out) == ["--- reward: 5"] * 2


def test_the_arguments_of_training(
    tmp_path: Path, common: list[str], tiny_llama: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    training = [
        f"data.train_files={tmp_path}/train.parquet",
        "data.train_batch_size=2",
        "actor_rollout_ref.actor.ppo_mini_batch_size=2",
        "actor_rollout_ref.rollout.n=2",
        f"actor_rollout_ref.model.path={tiny_llama}",
        f"trainer.default_local_dir={tmp_path}/run",
    ]
    assert main([*common, *training]) == 0
    shown = capsys.readouterr()
    assert heads(shown.out) == ["=== train.parquet:0"]
    assert totals(shown.out) == ["--- reward: 4"]  # the reference answer, "four"
    assert "memory plan" in shown.err  # that of the run, the policy included
    assert not (tmp_path / "run").exists()
    assert main([*common, *training, "reward.transforms.length={kind: rank}"]) == 0
    assert totals(capsys.readouterr().out) == [
        "--- reward: 0",
        "--- reward: 1",
    ]  # "four" is the shorter of it and "I do not know."


def test_a_row_of_every_data_source_and_the_cost_of_a_step(
    tmp_path: Path, common: list[str], tiny_llama: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows: list[dict[str, object]] = []
    for source in ("a", "a", "b", "b"):
        rows.append(
            {"prompt": "q", "data_source": source, "reward_model": {"ground_truth": source}}
        )
    write_rows(tmp_path / "sources.parquet", rows, overwrite=False)
    training = [
        f"data.train_files={tmp_path}/sources.parquet",
        "data.train_batch_size=4",
        "data.max_response_length=10",
        "actor_rollout_ref.actor.ppo_mini_batch_size=4",
        "actor_rollout_ref.rollout.n=2",
        f"actor_rollout_ref.model.path={tiny_llama}",
        f"trainer.default_local_dir={tmp_path}/run",
    ]
    assert main([*common, *training]) == 0
    out = capsys.readouterr().out
    assert heads(out) == [
        "=== sources.parquet:0, data source a",
        "=== sources.parquet:2, data source b",
    ]
    # 4 prompts, 2 responses of 10 tokens each
    assert "one step with all 8 responses at full length\n  policy: " in out
    assert " and 80 of responses, about 1 s\n  length: 8 responses in about 1 s (" in out
    assert "\n  together: about " in out
    assert main([*common, *training, "--estimate-rows", "0"]) == 0
    assert "one step" not in capsys.readouterr().out


def test_mistakes(tmp_path: Path, common: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*common, "data.fils=x"]) == 2
    assert "did you mean 'files'" in capsys.readouterr().err
    assert main(common) == 2
    assert "data.files is empty" in capsys.readouterr().err
    assert main([*common, f"data.files={tmp_path}/none.jsonl"]) == 6
    (tmp_path / "bad.jsonl").write_text("no json\n")
    bad = f"data.files={tmp_path}/bad.jsonl"
    assert main([*common, bad, "data.on_bad_row=quarantine"]) == 6
    assert "has no row that can be read" in capsys.readouterr().err
    assert main(["--rows", "0", *common]) == 2
    assert "must be 1 or more" in capsys.readouterr().err


def test_help_says_how_it_is_called(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "rmrl check <the arguments of rmrl train>" in capsys.readouterr().out
