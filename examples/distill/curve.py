"""The curve of a distillation: metrics.jsonl of a run -> curve.json and curve.png.

    python examples/distill/curve.py runs/distill/arithmetic --out benchmarks/results/distill

Per step: the reverse KL divergence of the policy to its teacher as estimated from the sampled
tokens (minus score/teacher/log_ratio, nats per token), and the share of right answers, sampled and
of the validation, which no reward asks for.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from matplotlib.figure import Figure

from rmrl.telemetry.curve import read_metrics

CURVES = {
    "kl": ("score/teacher/log_ratio", -1.0),
    "sampled_right": ("score/arithmetic/mean", 1.0),
    "validation_right": ("val/arithmetic", 1.0),
}
"""Name in curve.json -> metric and sign."""


def main() -> None:
    """Read the run, write both files."""
    parser = argparse.ArgumentParser(description="Draw the curve of a distillation.")
    parser.add_argument("run", type=Path, help="folder of the run")
    parser.add_argument("--out", type=Path, required=True, help="folder of the two files")
    options = parser.parse_args()
    metrics = read_metrics(options.run / "metrics.jsonl")
    curves: dict[str, list[list[float]]] = {}
    for name, (metric, sign) in CURVES.items():
        steps, values = metrics[metric]
        curves[name] = [
            [int(step), round(sign * value, 5)] for step, value in zip(steps, values, strict=True)
        ]
    options.out.mkdir(parents=True, exist_ok=True)
    lines = [f"{json.dumps(name)}: {json.dumps(points)}" for name, points in curves.items()]
    (options.out / "curve.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    figure = Figure(figsize=(7.0, 2.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(*zip(*curves["kl"], strict=True), color="#1f4e8c")
    left.set(title="KL(policy, teacher), nats per token", xlabel="step", ylim=(0, None))
    right.plot(*zip(*curves["sampled_right"], strict=True), color="#9db8d9", label="sampled")
    right.plot(*zip(*curves["validation_right"], strict=True), color="#1f4e8c", label="held out")
    right.set(title="share of right answers", xlabel="step", ylim=(0, 1))
    right.legend(frameon=False)
    figure.savefig(options.out / "curve.png", dpi=100)


if __name__ == "__main__":
    main()
