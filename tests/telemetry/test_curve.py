"""The figure: what is on it, and that it is a picture."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
from PIL import Image

from rmrl.telemetry.curve import choose_panels, draw_curves, read_metrics, smooth


def record(path: Path, steps: int) -> Path:
    with path.open("w") as file:
        for step in range(1, steps + 1):
            row = {
                "step": step,
                "reward/mean": step / 10,
                "score/a/mean": math.sin(step),
                "score/a/missing": 0.1 * (step == 2),
            }
            row |= {
                "policy/kl": None if step == 1 else 0.001 * step,
                "response/length_mean": 20 + step,
                "response/length_max": 40,
            }
            file.write(json.dumps(row) + "\n")
        file.write(json.dumps({"step": steps, "val/accuracy": 0.5}) + "\n")
    return path


def colours(png: Path) -> int:
    with Image.open(png) as image:
        assert image.size[0] > 600
        assert image.size[1] > 300
        return len(image.convert("RGB").getcolors(maxcolors=2**24))


def test_a_figure_of_many_steps(tmp_path: Path) -> None:
    assert draw_curves(record(tmp_path / "m.jsonl", 40), tmp_path / "curves.png")
    assert colours(tmp_path / "curves.png") > 50
    assert sorted(p.name for p in tmp_path.iterdir()) == ["curves.png", "m.jsonl"]


def test_one_step_is_enough(tmp_path: Path) -> None:
    assert draw_curves(record(tmp_path / "m.jsonl", 1), tmp_path / "new" / "curves.png")
    assert colours(tmp_path / "new" / "curves.png") > 20


def test_nothing_to_draw(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text('{"step": 1, "reward/me')
    assert not draw_curves(tmp_path / "empty.jsonl", tmp_path / "c.png")
    assert not draw_curves(tmp_path / "none.jsonl", tmp_path / "c.png")
    assert not (tmp_path / "c.png").exists()


def test_panels_and_series(tmp_path: Path) -> None:
    series = read_metrics(record(tmp_path / "m.jsonl", 3))
    assert [panel.title for panel in choose_panels(series)] == [
        "reward (mean)", "score: a", "val/accuracy", "KL of a step's update", "response length (tokens)",
    ]  # fmt: skip
    assert series["policy/kl"][0].tolist() == [2, 3]  # null is left out
    assert series["val/accuracy"][0].tolist() == [3]


def test_a_validation_is_one_panel_with_its_best_of_all(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    row = {
        "step": 1,
        "val/reward": 0.5,
        "val/reward/mean@4": 0.5,
        "val/reward/best@2/mean": 0.6,
        "val/reward/best@4/mean": 0.75,
    }
    path.write_text(
        json.dumps(
            row | {"val/reward/best@4/se": 0.1, "val/reward/missing": 0.25, "val/a/missing": 1.0}
        )
        + "\n"
    )
    reward, a = choose_panels(read_metrics(path))
    assert (reward.title, list(reward.lines)) == (
        "val/reward",
        ["val/reward", "val/reward/best@4/mean"],
    )
    assert reward.missing is not None
    assert reward.missing[1].tolist() == [0.25]
    assert (a.title, dict(a.lines)) == ("val/a", {})
    assert draw_curves(path, tmp_path / "curves.png")


def test_smooth_by_hand() -> None:
    # 5 points: one neighbour on each side, where there is one
    assert np.allclose(smooth(np.asarray([0.0, 3.0, 6.0, 0.0, 9.0])), [1.5, 3, 3, 5, 4.5])


def test_time_shares_are_parts_of_each_step_and_come_last(tmp_path: Path) -> None:
    """Step 1: 2 and 6 of 8 s. Step 2: 3 of 4 s; the score was not timed and counts 0."""
    path = tmp_path / "m.jsonl"
    rows = [
        {
            "step": 1,
            "reward/mean": 0.1,
            "time/score_s": 2.0,
            "time/update_s": 6.0,
            "time/step_s": 8.0,
        },
        {"step": 2, "reward/mean": 0.2, "time/update_s": 3.0, "time/step_s": 4.0},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    panel = choose_panels(read_metrics(path))[-1]
    assert (panel.title, panel.stacked) == ("share of a step's time", True)
    assert {name: values.tolist() for name, (_, values) in panel.lines.items()} == {
        "score": [0.25, 0.0],
        "update": [0.75, 0.75],
    }
    assert draw_curves(path, tmp_path / "curves.png", "project/run")


def test_the_runs_name_stands_on_the_figure(tmp_path: Path) -> None:
    path = record(tmp_path / "m.jsonl", 3)
    draw_curves(path, tmp_path / "without.png")
    draw_curves(path, tmp_path / "with.png", "project/run")
    assert (tmp_path / "without.png").read_bytes() != (tmp_path / "with.png").read_bytes()


def test_the_best_checkpoint_is_a_star_in_the_panel_of_its_metric(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    values = [0.2, 0.9, 0.5]
    with path.open("w") as file:
        for step, value in enumerate(values):
            row = {"step": step, "val/gold": value, "val/reward": step}
            row |= {"best/step": min(step, 1), "best/val/gold": max(values[: step + 1])}
            file.write(json.dumps(row) + "\n")
    panels = {panel.title: panel.best for panel in choose_panels(read_metrics(path))}
    assert panels == {"val/gold": (1, 0.9), "val/reward": None}
    assert draw_curves(path, tmp_path / "curves.png")
