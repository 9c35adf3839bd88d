"""`rmrl train-rm` as a user types it: killed and resumed, its gate, and what the other commands do
with its `reward.yaml`."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.torch import load_file

from rmrl.cli import main
from tests.patience import PATIENCE_S
from tests.reward_training.pairs import write_rows

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"]


def pairs(count: int, *, seed: int) -> list[dict[str, Any]]:
    """Pairs whose better response is the one that says "yes"."""
    draw = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for number in range(count):
        texts = [" ".join(draw.choices(WORDS, k=draw.randint(1, 4))) for _ in range(2)]
        rows.append(
            {
                "prompt": f"Question {number}?",
                "chosen": f"yes {texts[0]}",
                "rejected": f"no {texts[1]}",
                "margin": draw.random() / 10,
            }
        )
    return rows


def words(model: Path, rows: Path, out: Path, *more: str) -> list[str]:
    return [
        f"data.train_files={rows}",
        f"model.path={model}",
        "data.train_batch_size=8",
        "data.max_length=256",
        "trainer.total_training_steps=8",
        "trainer.test_freq=2",
        "trainer.device=cpu",
        "trainer.threads_per_process=1",
        "trainer.logger=[jsonl]",
        "fsdp_config.param_dtype=null",
        "optim.lr=1e-3",
        f"out={out}",
        *more,
    ]


def losses(out: Path) -> list[float]:
    lines = (out / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["train/loss"] for line in lines]


def kill_after(step: int, arguments: list[str], out: Path) -> None:
    """Run the command and kill it with all its processes once the checkpoint of `step` is there."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rmrl.main_rm", *arguments], start_new_session=True
    )
    end = time.monotonic() + 20 * PATIENCE_S
    while not (out / "checkpoints" / f"step_{step:06d}").exists():
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rows(tmp_path_factory.mktemp("rows") / "pairs.jsonl", pairs(80, seed=1))


def test_a_killed_run_goes_on_bit_for_bit_and_its_model_scores_the_same_everywhere(
    tiny_llama: Path, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = tmp_path / "whole"
    assert main(["train-rm", *words(tiny_llama, rows, whole)]) == 0
    report = json.loads((whole / "report.json").read_text())
    differences = report["gate"]["largest_difference_from_transformers"]
    assert set(differences) == {"training engine", "hf", "vllm"}
    assert max(differences.values()) <= report["gate"]["tolerance"]
    assert report["gate"]["texts"] == 16  # two of each of the eight held-out pairs
    judges = report["judges"]
    assert {"trained", "untrained head", "words", "longest", "constant"} <= set(judges)
    assert losses(whole)[-1] < losses(whole)[0]
    card = (whole / "best" / "README.md").read_text()
    assert "base_model" in card
    assert "length-matched" in card

    broken = tmp_path / "broken"
    copy = Path(shutil.copy(rows, tmp_path))
    arguments = words(tiny_llama, copy, broken, "gate.engines=[hf]")
    kill_after(4, arguments, broken)
    write_rows(copy, pairs(80, seed=2))
    assert main(["train-rm", *arguments]) != 0
    assert "is of a run on other rows" in capsys.readouterr().err
    shutil.copy(rows, copy)
    assert main(["train-rm", *arguments]) == 0
    assert losses(broken) == losses(whole)
    for name in ("best", "last"):
        first = load_file(whole / name / "model.safetensors")
        second = load_file(broken / name / "model.safetensors")
        assert first.keys() == second.keys()
        assert all(first[key].equal(second[key]) for key in first)

    responses = [{"prompt": "Question 3?", "responses": ["yes alpha", "no alpha"]}]
    scored = tmp_path / "scored.jsonl"
    files = write_rows(tmp_path / "responses.jsonl", responses)
    section = f"reward={whole / 'reward.yaml'}"
    command = [section, f"data.files={files}", "reward.engine.name=hf", "trainer.device=cpu"]
    assert main(["score", *command, f"out={scored}"]) == 0
    better, worse = json.loads(scored.read_text())["reward"]
    assert better > worse


@pytest.mark.parametrize(
    "more",
    [["seeds=2", "merge=average"], ["trainer.early_stop=3"], ["trainer.best_by=loss"]],
    ids=["seeds", "stop", "by"],
)
def test_keys_that_need_held_out_rows_are_refused_without(
    tiny_llama: Path,
    rows: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    more: list[str],
) -> None:
    arguments = ["data.val_share=0", *more]
    assert main(["train-rm", *words(tiny_llama, rows, tmp_path / "run", *arguments)]) != 0
    assert "need held-out rows, and none is left" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_two_processes_with_lora_and_lists(tiny_llama: Path, tmp_path: Path) -> None:
    """The prompts are conversations, which the reward reads whole."""
    system = {"role": "system", "content": "Say yes."}
    lists = [
        {
            "prompt": [system, {"role": "user", "content": row["prompt"]}],
            "responses": [row["rejected"], row["chosen"], f"{row['chosen']} yes"],
            "scores": [0, 1, 2],
        }
        for row in pairs(60, seed=2)
    ]
    out = tmp_path / "out"
    arguments = words(
        tiny_llama,
        write_rows(tmp_path / "lists.jsonl", lists),
        out,
        "objective=plackett_luce",
        "trainer.n_gpus_per_node=2",
        "model.lora_rank=4",
        "gate.engines=[hf]",
    )
    assert main(["train-rm", *arguments]) == 0
    differences = json.loads((out / "report.json").read_text())["gate"]
    assert set(differences["largest_difference_from_transformers"]) == {
        "training engine",
        "hf",
        "hf, not merged",
    }
    spec = yaml.safe_load((out / "reward.yaml").read_text())["reward"]["specs"]["out"]
    assert spec["rm_prompt"] == "conversation"


def test_attributes_become_labels(tiny_llama: Path, tmp_path: Path) -> None:
    ratings = [
        {
            "prompt": row["prompt"],
            "response": row[side],
            "attributes": {"correct": float(side == "chosen"), "long": len(row[side]) / 10},
        }
        for row in pairs(40, seed=3)
        for side in ("chosen", "rejected")
    ]
    del ratings[0]["attributes"]["long"]
    out = tmp_path / "out"
    arguments = words(
        tiny_llama,
        write_rows(tmp_path / "ratings.jsonl", ratings),
        out,
        "objective=attributes",
        "gate.engines=[hf]",
    )
    assert main(["train-rm", *arguments]) == 0
    config = json.loads((out / "best" / "config.json").read_text())
    assert list(config["id2label"].values()) == ["correct", "long"]
    report = json.loads((out / "report.json").read_text())
    assert report["judges"]["trained"]["correct"]["squared_error"] is not None


@pytest.mark.parametrize(
    ("further", "engines"),
    [
        (["optim.lr=1e-3", "gate.engines=[hf]"], {"hf"}),
        (["optim.lr=2e-2", "model.lora_rank=4"], {"hf", "hf, not merged", "vllm"}),
    ],
)
def test_steps_are_learned_and_scored_by_the_process_kind(
    tiny_llama: Path, tmp_path: Path, further: list[str], engines: set[str]
) -> None:
    """Steps that end in "yes" are right. `rmrl score` takes the lowest step."""
    draw = random.Random(5)
    rows: list[dict[str, Any]] = []
    for number in range(120):
        ends = draw.choices(["yes", "yes", "no"], k=draw.randint(1, 4))
        steps = [f"{draw.choice(WORDS)} {end}" for end in ends]
        labels = [end == "yes" for end in ends]
        rows.append({"prompt": f"Question {number}?", "steps": steps, "labels": labels})
    out = tmp_path / "out"
    arguments = words(
        tiny_llama,
        write_rows(tmp_path / "steps.jsonl", rows),
        out,
        "objective=process",
        "trainer.total_training_steps=30",
        "trainer.test_freq=10",
        *further,
    )
    assert main(["train-rm", *arguments]) == 0
    report = json.loads((out / "report.json").read_text())
    differences = report["gate"]["largest_difference_from_transformers"]
    assert set(differences) == {"training engine"} | engines
    assert ("vllm, not merged" in report["gate"]["skipped"]) == ("vllm" in engines)
    assert max(differences.values()) <= 1e-5
    assert report["judges"]["trained"]["auc"] > 0.8
    files = write_rows(
        tmp_path / "responses.jsonl",
        [{"prompt": "Question 3?", "responses": ["alpha yes\n\nbeta yes", "alpha yes\n\nbeta no"]}],
    )
    scored = tmp_path / "scored.jsonl"
    section = f"reward={out / 'reward.yaml'}"
    command = [section, f"data.files={files}", "reward.engine.name=hf", "trainer.device=cpu"]
    assert main(["score", *command, f"out={scored}"]) == 0
    right, wrong = json.loads(scored.read_text())["reward"]
    assert right > wrong


@pytest.mark.parametrize(
    ("decision", "further"),
    [("cross_entropy", "gate.engines=[hf]"), ("rlcd", "model.lora_rank=4")],
)
def test_decisions_are_learned_and_scored_by_the_rubric_kind(
    tiny_llama: Path, tmp_path: Path, decision: str, further: str
) -> None:
    """A response that says "yes" is good in nine of ten rows. The answers are letters, which the
    tiny tokenizer has a token for."""
    draw = random.Random(6)
    rows: list[dict[str, Any]] = []
    for number in range(80):
        word, label, other = draw.choice([("yes", "G", "B"), ("no", "B", "G")])
        (label,) = draw.choices([label, other], [0.9, 0.1])
        response = f"{word} {draw.choice(WORDS)}"
        rows.append({"prompt": f"Question {number}?", "response": response, "label": label})
    for row in rows:
        row |= {"question": "Is it good?", "answers": ["B", "G"]}
    out = tmp_path / "out"
    arguments = words(
        tiny_llama,
        write_rows(tmp_path / "choices.jsonl", rows),
        out,
        "objective=decision",
        f"loss.decision={decision}",
        "data.max_length=1024",
        "trainer.total_training_steps=20",
        "trainer.test_freq=10",
        further,
    )
    assert main(["train-rm", *arguments]) == 0
    report = json.loads((out / "report.json").read_text())
    assert max(report["gate"]["largest_difference_from_transformers"].values()) <= 5e-5
    assert report["gate"]["texts"] == 8
    judges = report["judges"]
    lines = (out / "metrics.jsonl").read_text().splitlines()
    briers = [json.loads(line)["train/brier"] for line in lines]
    assert sum(briers[-5:]) < sum(briers[:5])
    assert judges["trained"]["label_mass"] > judges["untrained head"]["label_mass"]
    files = write_rows(
        tmp_path / "responses.jsonl", [{"prompt": "Question 3?", "response": "yes alpha"}]
    )
    scored = tmp_path / "scored.jsonl"
    section = f"reward={out / 'reward.yaml'}"
    command = [section, f"data.files={files}", "reward.engine.name=hf", "trainer.device=cpu"]
    assert main(["score", *command, f"out={scored}"]) == 0
    assert 0 < json.loads(scored.read_text())["reward"] < 1


def test_critiques_are_written_once_and_read_by_the_critique_kind(
    tiny_llama: Path, smollm2: Path, tmp_path: Path
) -> None:
    """SmolLM2 writes the critiques. The run that goes on after a kill asks for none."""
    talks = pairs(12, seed=7)
    for row in talks:
        row["prompt"] = [
            {"role": "system", "content": "Answer yes."},
            {"role": "user", "content": row["prompt"]},
        ]
    for row in talks[::2]:
        # The last turns are one text; the turns before them are not.
        for side in ("chosen", "rejected"):
            spoken = [row[side], "Sure?", "I am."]
            roles = ("assistant", "user", "assistant")
            row[side] = row["prompt"] + [
                {"role": role, "content": text} for role, text in zip(roles, spoken, strict=True)
            ]
        del row["prompt"]
    rows = write_rows(tmp_path / "pairs.jsonl", talks)
    out = tmp_path / "out"
    arguments = words(
        tiny_llama,
        rows,
        out,
        "objective=critique",
        f"loss.critic.path={smollm2}",
        "+loss.critic.question='Is the response good? Answer in one short sentence.'",
        "+loss.critic.sampling={max_tokens: 160}",
        "data.train_batch_size=4",
        "data.max_length=1024",
        "data.val_share=0.2",
        "gate.engines=[hf]",
    )
    kill_after(2, arguments, out)
    # Rows without a critique are the same ones when the run goes on.
    record = json.loads((out / "critiques.json").read_text())
    assert main(["train-rm", *arguments]) == 0
    assert json.loads((out / "critiques.json").read_text()) == record
    log = (out / "run.log").read_text()
    assert log.count("writing critiques of") == 2
    assert log.count(f"slot: loading {smollm2} for critic") == 1
    report = json.loads((out / "report.json").read_text())
    assert set(report["gate"]["largest_difference_from_transformers"]) == {"training engine", "hf"}
    assert report["data"]["train"]["rows"] + report["data"]["without_critique"] >= 8
    section = yaml.safe_load((out / "reward.yaml").read_text())["reward"]
    spec = section["specs"]["out"]
    assert (spec["kind"], spec["path"]) == ("critique", str(smollm2.resolve()))
    assert spec["rm_prompt"] == "conversation"
    assert spec["scorer"] == {"path": str((out / "best").resolve())}
