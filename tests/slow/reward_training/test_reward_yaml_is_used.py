"""The `reward.yaml` of `rmrl train-rm` is a section for `rmrl score`, `rmrl serve` and
`rmrl train`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmrl.cli import main
from tests.reward_training.pairs import write_rows
from tests.slow.reward_training.test_main_rm import pairs, words
from tests.slow.serve.test_process import server
from tests.trainer.job import Job

HF = "reward.engine.name=hf"


@pytest.fixture(scope="module")
def section(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    rows = write_rows(folder / "pairs.jsonl", pairs(40, seed=7))
    out = folder / "better"
    assert main(["train-rm", *words(tiny_llama, rows, out, "gate.engines=[hf]")]) == 0
    return out / "reward.yaml"


def scored(section: Path, files: Path) -> list[float]:
    """What `rmrl score` gives each response."""
    out = files.with_name("scored.jsonl")
    keys = [f"reward={section}", f"data.files={files}", HF, "trainer.device=cpu", f"out={out}"]
    assert main(["score", *keys]) == 0
    return [json.loads(line)["reward"] for line in out.read_text().splitlines()]


def test_a_server_scores_with_it(section: Path, tmp_path: Path) -> None:
    rows = [{"prompt": each["prompt"], "response": each["chosen"]} for each in pairs(6, seed=8)]
    offline = scored(section, write_rows(tmp_path / "rows.jsonl", rows))
    with server(tmp_path, f"reward={section}", HF, "trainer.device=cpu") as running:
        running.wait_until(200)
        answer = running.post(rows)
    assert answer.status_code == 200, answer.text
    rewards = [row["reward"] for row in answer.json()["rows"]]
    assert rewards == pytest.approx(offline, abs=1e-6)
    assert len(set(rewards)) == len(rows)


def test_a_policy_learns_from_it(
    section: Path, tmp_path: Path, tiny_llama: Path, tiny_reward_llama: Path
) -> None:
    job = Job(folder=tmp_path, policy=tiny_llama, scalar=tiny_reward_llama).prepare()
    settings = {
        "reward": section,
        "reward.models": "[letters,better]",
        "reward.engine.name": "hf",
        "trainer.total_training_steps": 1,
        "trainer.logger": "[jsonl]",
    }
    code, printed = job.run("run", **settings)
    assert code == 0, printed[-3000:]
    (line,) = job.lines("run")
    assert line["reward/mean"] == pytest.approx(
        line["score/letters/mean"] + line["score/better/mean"], rel=1e-6
    )
    samples = job.lines("run", "samples.jsonl")
    assert len(samples) == 4 * 4
    offline = scored(section, tmp_path / "run" / "samples.jsonl")
    trained = [row["scores"]["better"]["score"] for row in samples]
    assert trained == pytest.approx(offline, abs=1e-5)
