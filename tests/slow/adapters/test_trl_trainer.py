"""A short GRPO training of TRL's own trainer with rmrl's rewards: what TRL logs equals what `rmrl
score` gives for the same texts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
import yaml

from rmrl.adapters.shared import close_all
from rmrl.adapters.trl import reward_funcs

RULE = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None, response_tokens=0):
    if len(solution_str) % 5 == 0:
        return None
    return len(solution_str) / 100 + len(ground_truth) + response_tokens / 1000
"""
PROMPTS = ["What is the capital of France?", "What is two plus two?"]
ANSWERS = ["Paris", "4"]


def test_what_trl_logs_equals_rmrl_score_on_the_same_texts(
    tmp_path: Path, tiny_llama: Path, ms_marco: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trl = pytest.importorskip("trl")
    from datasets import Dataset

    (tmp_path / "rule.py").write_text(RULE)
    section = {
        "models": ["rule", "relevance"],
        "weights": [1.0, 0.5],
        "functions_dir": str(tmp_path),
        "rule_workers": 1,
        "max_missing": 0.9,
        "specs": {"relevance": {"path": str(ms_marco), "engine": {"name": "hf"}}},
    }
    reward = tmp_path / "reward.yaml"
    reward.write_text(yaml.safe_dump({"reward": section, "trainer": {"device": "cpu"}}))
    rewards = reward_funcs(reward)
    trainer = trl.GRPOTrainer(
        model=str(tiny_llama),
        reward_funcs=[*rewards, tokens],
        args=trl.GRPOConfig(
            output_dir=str(tmp_path / "run"),
            reward_weights=[*rewards.weights, 0.0],
            per_device_train_batch_size=8,
            num_generations=4,
            max_completion_length=12,
            max_steps=2,
            logging_steps=1,
            log_completions=True,
            report_to="none",
            save_strategy="no",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_dict({"prompt": PROMPTS, "answer": ANSWERS}),
    )
    try:
        trainer.train()
    finally:
        close_all()
    # The engine ended after each step, and TRL had its memory: `hf` has no lighter sleep.
    assert sum(text.endswith("for relevance") for text in caplog.messages) == 2
    steps = [entry for entry in trainer.state.log_history if "rewards/rule/mean" in entry]
    assert len(steps) == 2
    logged = logged_rows(tmp_path / "run")
    scored = scored_again(logged, reward, tmp_path)
    assert len(scored) == 16
    for step, rows, entry in ((1, scored[:8], steps[0]), (2, scored[8:], steps[1])):
        whole = [row for row in rows if row["reward"] is not None]
        assert whole, step
        for name in ("rule", "relevance"):
            values = [row[f"score_{name}"] for row in whole]
            assert entry[f"rewards/{name}/mean"] == pytest.approx(sum(values) / len(values), 1e-4)
            missing = sum(row[f"status_{name}"] != "ok" for row in rows)
            assert entry[f"rewards/{name}/missing"] == missing / 8
        total = sum(row["reward"] for row in whole)
        assert entry["reward"] == pytest.approx(total / len(whole), 1e-4)
    for row, again in zip(logged, scored, strict=True):
        if again["reward"] is None:
            assert row["advantage"] == 0.0
            assert row["rule"] is None
            assert row["relevance"] is None  # NaN in TRL: left out of the group's mean
            continue
        assert row["rule"] == pytest.approx(again["score_rule"], abs=1e-5)
        assert row["relevance"] == pytest.approx(again["score_relevance"], abs=1e-4)


AT_EXIT = """
import sys, psutil
from rmrl.adapters.trl import reward_funcs
(func,) = reward_funcs(sys.argv[1])
assert len(func(prompts=["p", "q"], completions=["w1 w2", "w3"])) == 2
print(*[child.pid for child in psutil.Process().children(recursive=True)])
"""


def test_engines_end_with_a_program_that_does_not_close_them(
    tmp_path: Path, tiny_reward_llama: Path
) -> None:
    engine = {"name": "hf", "residency": "resident"}
    spec = {"path": str(tiny_reward_llama), "engine": engine}
    section = {"models": ["scalar"], "specs": {"scalar": spec}}
    reward = tmp_path / "reward.yaml"
    reward.write_text(yaml.safe_dump({"reward": section, "trainer": {"device": "cpu"}}))
    words = [sys.executable, "-c", AT_EXIT, str(reward)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    engines = list(map(int, ended.stdout.split()))
    assert engines
    gone, alive = psutil.wait_procs(processes(engines), timeout=300)
    assert alive == [], gone


def processes(pids: list[int]) -> list[psutil.Process]:
    """Those that are still there."""
    return [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]


def tokens(
    completion_ids: list[list[int]], log_extra: Callable[[str, list[int]], None], **_: Any
) -> list[None]:
    """Write the lengths of the completions into TRL's table."""
    log_extra("tokens", [len(ids) for ids in completion_ids])
    return [None] * len(completion_ids)


def logged_rows(folder: Path) -> list[dict[str, Any]]:
    """The tables of completions that TRL wrote, in the order of the steps."""
    rows: list[dict[str, Any]] = []
    for file in sorted((folder / "completions").glob("*.parquet")):
        rows += pq.read_table(file).to_pylist()
    return rows


def scored_again(logged: list[dict[str, Any]], reward: Path, folder: Path) -> list[dict[str, Any]]:
    """`rmrl score` on the texts, in its own process and with its own engine."""
    data = folder / "rows.jsonl"
    answers = dict(zip(PROMPTS, ANSWERS, strict=True))
    lines: list[str] = []
    for row in logged:
        fields = {
            "prompt": row["prompt"],
            "response": row["completion"],
            "ground_truth": answers[row["prompt"]],
            "response_tokens": row["tokens"],
        }
        lines.append(json.dumps(fields) + "\n")
    data.write_text("".join(lines))
    section = yaml.safe_load(reward.read_text())
    config = {**section, "data": {"files": str(data)}, "out": str(folder / "scored.jsonl")}
    path = folder / "again.yaml"
    path.write_text("defaults: [score, _self_]\n" + yaml.safe_dump(config))
    words = ["--config-dir", str(folder), "--config-name", "again"]
    subprocess.run([sys.executable, "-m", "rmrl.main_score", *words], check=True, timeout=300)
    return [json.loads(line) for line in (folder / "scored.jsonl").read_text().splitlines()]
