"""--multirun: each job is run and reported, and leaves nothing but its own output."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmrl import main_score
from rmrl.commands.command import KeyCommand
from rmrl.config.load import run_command
from rmrl.config.schema import ScoreConfig
from rmrl.errors import ConfigError, DataError, Interrupted, SweepError
from tests.inputs import read_lines, write_lines

ROW = {"prompt": "2 + 2?", "response": "#### 4", "reward_model": {"ground_truth": "4"}}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with rows and a section."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "section.yaml").write_text("models: [gsm8k]\nrule_workers: 1\n")
    write_lines(tmp_path / "rows.jsonl", [ROW])
    return tmp_path


def files(folder: Path) -> list[str]:
    """Names of what is in a folder."""
    return sorted(path.name for path in folder.iterdir())


def test_every_failed_job_is_reported_with_the_code_of_the_first(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--multirun", "reward=section.yaml", "data.files=none.jsonl,rows.jsonl,missing.jsonl"]
    before = files(folder)
    assert main_score.main([*words, "out=a.jsonl", "overwrite=true"]) == 6
    printed = capsys.readouterr().err
    assert "Traceback" not in printed
    message = printed[printed.index("SweepError: 2 of 3 jobs failed:") :].splitlines()
    assert message[1].startswith(
        "- data.files=none.jsonl: DataError: data.files: none.jsonl does not exist"
    )
    assert message[2].startswith(
        "- data.files=missing.jsonl: DataError: data.files: missing.jsonl does not exist"
    )
    assert [row["reward"] for row in read_lines(folder / "a.jsonl")] == [1.0]
    written = {"a.jsonl", "a.jsonl.log", "a.jsonl.summary.json"}
    assert set(files(folder)) - set(before) == written  # no folder multirun


def test_a_job_is_announced_by_what_it_has_for_itself(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    seeds: list[int] = []

    def run(config: ScoreConfig) -> None:
        seeds.append(config.trainer.seed)
        if config.trainer.seed == 2:
            raise DataError("rows.jsonl: row 3 has no text\nthe second line")

    with pytest.raises(SweepError) as error:
        run_command(["-m", "trainer.seed=1,2,3", "out=a.jsonl"], run, ScoreConfig)
    assert seeds == [1, 2, 3]
    lines: list[str] = []
    for record in caplog.records:
        if record.name.startswith("rmrl"):
            lines.append(record.getMessage())
    assert lines == [
        "job 1 of the sweep: trainer.seed=1",
        "job 2 of the sweep: trainer.seed=2",
        "job 2 failed, the sweep goes on: rows.jsonl: row 3 has no text",
        "job 3 of the sweep: trainer.seed=3",
    ]
    assert str(error.value) == (
        "1 of 3 jobs failed:\n"
        "- trainer.seed=2: DataError: rows.jsonl: row 3 has no text\n"
        "  the second line"
    )
    assert (error.value.exit_code, ConfigError("x").exit_code) == (6, 2)


def test_an_interrupted_job_ends_the_sweep() -> None:
    seeds: list[int] = []

    def run(config: ScoreConfig) -> None:
        seeds.append(config.trainer.seed)
        raise Interrupted("interrupted in step 3")

    with pytest.raises(KeyboardInterrupt, match="interrupted in step 3"):
        run_command(["-m", "trainer.seed=1,2,3"], run, ScoreConfig)
    assert seeds == [1]


def test_a_folder_that_the_user_names_is_kept(folder: Path) -> None:
    def run(config: ScoreConfig) -> None:
        assert config.out is not None
        Path(config.out).write_text("scores")

    out = "out=${hydra:runtime.output_dir}/a.jsonl"
    run_command(["-m", "trainer.seed=1,2", out, "hydra.sweep.dir=jobs"], run, ScoreConfig)
    assert (folder / "jobs" / "0" / "a.jsonl").read_text() == "scores"
    assert (folder / "jobs" / "1" / "a.jsonl").read_text() == "scores"


class _SeedAsCode(KeyCommand[ScoreConfig, int, int]):
    """Shows a result whose exit code is the seed."""

    root = ScoreConfig
    checking = "the seed"

    def check(self, settings: ScoreConfig) -> int:
        return settings.trainer.seed

    def run(self, checked: int) -> int:
        return checked

    def show(self, checked: int, result: int) -> int:
        return result


@pytest.mark.parametrize(
    ("words", "code"),
    [(["trainer.seed=0"], 0), (["trainer.seed=3"], 3), (["-m", "trainer.seed=1,3,0"], 3)],
)
def test_the_exit_code_is_what_show_returns_and_the_highest_of_a_sweep(
    words: list[str], code: int
) -> None:
    assert _SeedAsCode("seed", "a seed").main(words) == code
