"""The console line, in a file and on a terminal."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from rmrl.telemetry.console import ConsoleSink, duration, number, step_line
from rmrl.telemetry.sinks import SinkContext

METRICS = {
    "reward/mean": 0.4123,
    "score/answer_judge/mean": 0.55,
    "score/answer_judge/missing": 0.0,
    "score/answer_judge/tokens_out": 80.0,
    "score/scalar/mean": -1.2,
    "score/scalar/missing": 0.0,
    "policy/kl": 0.00118,
    "response/length_mean": 23.08,
    "time/generate_s": 2.1,
    "time/score_s": 3.0,
    "time/update_s": 6.2,
    "time/step_s": 13.0,
}


class Terminal(io.StringIO):
    """Text that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_the_whole_line() -> None:
    expected = (
        "step 3/20 | reward 0.412 | answer_judge 0.55 (miss 0%) | scalar -1.20 | kl 0.0012 | len"
        " 23.1 | gen 2.1s score 3.0s train 6.2s | 13.0s"
    )
    assert step_line(3, METRICS, total=20) == expected


def test_a_line_fits_its_width_and_keeps_every_reward() -> None:
    assert (
        step_line(3, METRICS, total=20, width=100)
        == "step 3/20 | reward 0.412 | answer_judge 0.55 (miss 0%) | scalar -1.20 | kl 0.0012 |"
        " len 23.1 | 13.0s"
    )
    assert (
        step_line(3, METRICS, total=20, width=94, eta="eta 20s")
        == "step 3/20 | reward 0.412 | ans_jud 0.55 | sca -1.20 | kl 0.0012 | len 23.1 | 13.0s |"
        " eta 20s"
    )
    assert (
        step_line(3, METRICS, total=20, width=60)
        == "step 3/20 | reward 0.412 | ans_jud 0.55 | sca -1.20 | 13.0s"
    )
    assert step_line(3, METRICS, total=20, width=40) == (
        "step 3/20 | reward 0.412 | ans_jud 0.55\n  sca -1.20 | 13.0s"
    )


def test_twenty_rewards_go_on_in_the_next_lines() -> None:
    metrics = {"reward/mean": 0.5}
    for number_ in range(20):
        metrics[f"score/criterion{number_}/mean"] = 0.25
        metrics[f"score/criterion{number_}/missing"] = 0.0
    lines = step_line(3, metrics, total=20, width=100).splitlines()
    assert max(map(len, lines)) <= 100
    assert "\n".join(lines).count(" 0.25") == 20
    assert all(line.startswith("  criterion") for line in lines[1:])


def test_a_component_with_missing_verdicts_says_so_behind_its_short_name() -> None:
    metrics = {**METRICS, "score/scalar/missing": 0.5}
    line = step_line(3, metrics, total=20, width=74)
    assert line == "step 3/20 | reward 0.412 | ans_jud 0.55 | sca -1.20 (miss 50%) | 13.0s"


def test_a_wide_terminal_shows_more_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = {}
    for columns in ("80", "", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        stream = io.StringIO()
        ConsoleSink(
            SinkContext(out_dir=tmp_path, project="p", experiment="e", total_steps=20), stream
        ).log(3, METRICS)
        lines[columns] = stream.getvalue().rstrip("\n")
    assert len(lines["80"]) <= 80
    assert 80 < len(lines[""]) <= 100
    assert "gen 2.1s score 3.0s train 6.2s" in lines["200"]


def test_missing_verdicts_show() -> None:
    assert "a 1.00 (miss 25%)" in step_line(1, {"score/a/mean": 1.0, "score/a/missing": 0.25})
    assert "a 1.00 (miss <1%)" in step_line(1, {"score/a/mean": 1.0, "score/a/missing": 0.004})
    assert "a - (miss 100%)" in step_line(1, {"score/a/missing": 1.0})


def test_validation_is_one_number_a_name_with_the_best_and_what_is_missing() -> None:
    metrics = {
        "val/length": 8.0,
        "val/reward": 0.5,
        "val/reward/missing": 0.1,
        "val/reward/mean@8": 0.5,
        "val/reward/best@2/mean": 0.6,
    }
    metrics |= {
        "val/reward/best@8/mean": 0.75,
        "val/reward/best@8/std": 0.1,
        "val/reward/maj@8/se": 0.1,
        "val/a/missing": 1.0,
    }
    expected = (
        "step 4 | val/length 8.00 | val/reward 0.50 (best@8 0.75, miss 10%) | val/a - (miss 100%)"
    )
    assert step_line(4, metrics) == expected


def test_a_file_gets_lines_with_the_time_left_and_no_control_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")  # a variable of the shell that starts the tests counts too
    times = iter([0.0, 10.0, 20.0, 30.0])
    with (tmp_path / "train.log").open("w") as file:
        sink = ConsoleSink(
            SinkContext(
                out_dir=tmp_path, project="p", experiment="e", total_steps=13, resume_step=10
            ),
            file,
            lambda: next(times),
        )
        for step in (11, 12, 13):
            sink.log(step, METRICS)
        sink.log(13, {"val/accuracy": 0.5})
        sink.close()
    text = (tmp_path / "train.log").read_text()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)
    lines = text.splitlines()
    assert lines[0].endswith("| 13.0s | eta 20s")
    assert lines[1].endswith("| eta 10s")
    assert lines[2].endswith("| 13.0s")
    assert lines[3] == "step 13/13 | val/accuracy 0.50"


def test_a_terminal_gets_a_bar_that_knows_where_it_resumed(tmp_path: Path) -> None:
    stream = Terminal()
    sink = ConsoleSink(
        SinkContext(out_dir=tmp_path, project="p", experiment="e", total_steps=4, resume_step=2),
        stream,
    )
    sink.log(3, METRICS)
    sink.close()
    text = stream.getvalue()
    assert "step 3/4 | reward 0.412" in text
    assert "2/4" in text
    assert "3/4 [" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1234.5, "1234"), (12.34, "12.3"), (-1.2, "-1.20"), (0.00118, "0.0012")],
)
def test_number(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(9.6, "10s"), (185, "3m05s"), (7800, "2h10m"), (273600, "3d04h")]
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_kl_is_that_to_the_reference_where_there_is_one():
    assert "kl 0.2000" in step_line(1, {"policy/kl": 0.1, "policy/ref_kl": 0.2})
    assert "kl 0.1000" in step_line(1, {"policy/kl": 0.1})
