"""20 steps of examples/arithmetic under every layout, by the command that a user types."""

from __future__ import annotations

import os
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.backends.layouts import LAYOUTS, Layout
from rmrl.telemetry import jsonl, names

ROOT = Path(__file__).resolve().parent.parent.parent
DEADLINE_S = 1800.0
PHASES = ("logprobs", "update", "publish")
_LOG_CHARACTERS = 3000


def measure(steps: int, folder: Path, more: Sequence[str] = ()) -> dict[str, Any]:
    """Layout -> reward, gradient norm and log-probability difference by step, and seconds of the
    phases."""
    return {layout.name: _run(layout, steps, folder, more) for layout in LAYOUTS}


def _run(layout: Layout, steps: int, folder: Path, more: Sequence[str]) -> dict[str, Any]:
    out = folder / layout.name.replace(" ", "-")
    words = [
        *layout.words(),
        f"trainer.total_training_steps={steps}",
        "trainer.save_freq=-1",
        "trainer.test_freq=-1",
    ]
    command = [
        "bash",
        "examples/arithmetic/run.sh",
        *words,
        f"trainer.default_local_dir={out}",
        "trainer.logger=[jsonl]",
        *more,
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(
            f"{layout.name} ended with code"
            f" {done.returncode}:\n{(done.stdout + done.stderr)[-_LOG_CHARACTERS:]}"
        )
    rows = [row for row in jsonl.read(out / "metrics.jsonl") if names.REWARD_MEAN in row]
    return {
        "reward_mean": [row[names.REWARD_MEAN] for row in rows],
        "grad_norm": [row["policy/grad_norm"] for row in rows],
        "rollout_logprob_diff": [row.get("policy/rollout_logprob_diff") for row in rows],
        "phases_s": {
            phase: statistics.median(row.get(f"time/{phase}_s", 0.0) for row in rows)
            for phase in PHASES
        },
    }


def table(found: Mapping[str, Any]) -> str:
    """One line per layout."""
    base = found[LAYOUTS[0].name]
    lines = [
        "layout: reward of the first and last 5 steps | largest difference of the first 3 gradient"
        " norms | update, times FSDP2's"
    ]
    for name, runs in found.items():
        first, last = (
            statistics.mean(part) for part in (runs["reward_mean"][:5], runs["reward_mean"][-5:])
        )
        apart = max(
            abs(a - b) / b
            for a, b in zip(runs["grad_norm"][:3], base["grad_norm"][:3], strict=True)
        )
        ratio = runs["phases_s"]["update"] / base["phases_s"]["update"]
        lines.append(f"{name}: {first:.3f} -> {last:.3f} | {apart:.2g} | {ratio:.2f}")
    return "\n".join(lines)


def draw(found: Mapping[str, Any], path: Path) -> None:
    """Rewards of all layouts in one picture, gradient norms beside them."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator

    figure, (rewards, norms) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for axes, key, title in (
        (rewards, "reward_mean", "mean reward"),
        (norms, "grad_norm", "gradient norm"),
    ):
        for name, runs in found.items():
            axes.plot(range(1, len(runs[key]) + 1), runs[key], label=name, linewidth=1.5)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("step")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    rewards.legend(fontsize=8)
    figure.savefig(path, dpi=120)
    plt.close(figure)
