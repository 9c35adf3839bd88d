"""Hand-made samples of a run, as training writes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.inputs import write_lines

HOSTILE = "</script><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">\u2028\ud83d"
"""A response that tries to become markup, with a line separator of JavaScript and a lone
surrogate."""

CONFIG = """
reward:
  models: [rule, judge]
  weights: [1.0, 0.5]
  combine: weighted_sum
  transforms:
    judge: {kind: scale, factor: 2.0}
"""


def sample(
    step: int, prompt: int, response: str, *, rule: float, judge: float | None, **more: Any
) -> dict[str, Any]:
    """One line; the reward is rule + 0.5 * (2 * judge)."""
    reward = None if judge is None else rule + judge
    verdict = {
        "score": judge,
        "status": "ok" if judge is not None else "unparseable",
        "detail": "" if judge is not None else "no number in the text",
        "extra": {},
        "rendered": f"Rate: {response}",
        "raw": f"Score {judge}",
    }
    return {
        "step": step,
        "prompt_id": f"train:{prompt}",
        "data_source": "sums",
        "ground_truth": "7",
        "messages": [{"role": "user", "content": f"question {prompt}"}],
        "response": response,
        "response_tokens": len(response.split()),
        "finish_reason": "stop",
        "scores": {
            "rule": {"score": rule, "status": "ok", "detail": "", "extra": {"answer": "7"}},
            "judge": verdict,
        },
        "weights": {"rule": 1.0, "judge": 0.5},
        "reward": reward,
        "kept": judge is not None,
        "advantage": 0.5,
        **more,
    }


SAMPLES = (
    sample(1, 0, "seven", rule=1.0, judge=0.2),
    sample(1, 1, "a long way to say eight", rule=0.0, judge=0.9),
    sample(2, 0, f"{HOSTILE} nine", rule=0.0, judge=None),
    sample(2, 1, "it is seven", rule=1.0, judge=0.6),
)


def write_run(folder: Path, samples: Sequence[dict[str, Any]] = SAMPLES) -> Path:
    """A run's folder with samples, metrics of two steps, and its configuration."""
    folder.mkdir(parents=True)
    text = "".join(json.dumps(each) + "\n" for each in samples)
    (folder / "samples.jsonl").write_text(text, encoding="utf-8")
    metrics = [
        {"step": 1, "reward/mean": 1.05, "score/judge/mean": 0.55, "time/step_s": 3.0},
        {"step": 2, "reward/mean": 1.6, "score/judge/mean": 0.6, "score/judge/missing": 0.5},
    ]
    write_lines(folder / "metrics.jsonl", metrics)
    (folder / "config.yaml").write_text(CONFIG)
    return folder
