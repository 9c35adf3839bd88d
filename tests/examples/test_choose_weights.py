"""examples/choose_weights runs as its page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def number(text: str, label: str) -> float:
    match = re.search(rf"^{label}: ([0-9.]+)", text, re.MULTILINE)
    assert match, text
    return float(match[1])


def test_fitted_weights_are_better_than_equal_ones_and_each_reward_alone(tmp_path: Path) -> None:
    script = ROOT / "examples" / "choose_weights" / "choose_weights.py"
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    fitted = number(done.stdout, "fitted weights, on unseen pairs")
    assert fitted > 0.85
    assert fitted > number(done.stdout, "equal weights") + 0.05
    for name in ("gsm8k", "short", "even"):
        assert number(done.stdout, f"{name} alone") < fitted - 0.1
    ordered = re.search(r"put (\d+) of 200 pairs in order", done.stdout)
    assert ordered is not None
    assert int(ordered[1]) >= 170
