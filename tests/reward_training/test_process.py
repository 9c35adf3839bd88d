"""Steps with labels: their layouts, the tokens that are read, the loss and the figures."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import binary_cross_entropy

from rmrl.config.schema import RewardDataConfig, RewardLossConfig
from rmrl.errors import DataError
from rmrl.reward_training.example import Example
from rmrl.reward_training.labelled_batch import batch_of
from rmrl.reward_training.objectives.process import Process
from rmrl.reward_training.read_examples import read_examples
from rmrl.reward_training.tokens import tokenized
from rmrl.rewards.kinds.process.parts import cut_parts
from rmrl.tokenizer import load_tokenizer
from tests.reward_training.pairs import write_rows

MARK = "\u043a\u0438"
PROCESS = Process(RewardLossConfig())
SHARED = Path(__file__).resolve().parents[3] / "shared"
PROCESSBENCH = SHARED / "data/rollouts/processbench_gsm8k.jsonl"


def read(tmp_path: Path, row: dict[str, Any]) -> Example:
    path = write_rows(tmp_path / "rows.jsonl", [row])
    (example,) = read_examples(
        str(path), "data.train_files", RewardDataConfig(), among=Process.forms
    )
    return example


def rated(text: str, rating: int | None) -> dict[str, Any]:
    return {"text": text, "rating": rating}


ROWS: dict[str, dict[str, Any]] = {
    "steps": {"prompt": "Q", "steps": ["a", "b\n\nb", "c"], "labels": [True, 0.25, None]},
    "trl": {"prompt": "Q", "completions": ["a", "b\n \nb", "c"], "labels": [1, 0.25, None]},
    "processbench": {"problem": "Q", "steps": ["a", "b\nb", "c"], "label": 1},
    "math_shepherd": {
        "input": f"Q Step 1: a {MARK} Step 2: b {MARK}",
        "label": "Q Step 1: a + Step 2: b -",
    },
    "rlhflow": {
        "conversations": [
            {"role": "user", "content": "Q Step 1: a"},
            {"role": "assistant", "content": "+"},
            {"role": "user", "content": "Step 2: b"},
            {"role": "assistant", "content": "-"},
        ]
    },
    "prm800k": {
        "question": {"problem": "Q"},
        "label": {
            "steps": [
                {"completions": [rated("x", -1), rated("a", 1)], "chosen_completion": 1},
                {
                    "completions": [],
                    "chosen_completion": None,
                    "human_completion": rated("h", None),
                },
                {"completions": [rated("b", 0)], "chosen_completion": 0},
                {"completions": [rated("c", -1)], "chosen_completion": None},
                {"completions": [rated("never", 1)], "chosen_completion": 0},
            ]
        },
    },
}


@pytest.mark.parametrize(
    ("name", "response", "labels"),
    [
        ("steps", "a\n\nb\nb\n\nc", (1, 0.25, None)),
        ("trl", "a\n\nb\nb\n\nc", (1, 0.25, None)),
        ("processbench", "a\n\nb\nb\n\nc", (1, 0, None)),
        ("math_shepherd", "Step 1: a\n\nStep 2: b", (1, 0)),
        ("rlhflow", "Step 1: a\n\nStep 2: b", (1, 0)),
        ("prm800k", "a\n\nh\n\nb\n\nc", (1, None, 1, 0)),
    ],
)
def test_each_layout_is_told_by_its_columns(
    tmp_path: Path, name: str, response: str, labels: tuple[float | None, ...]
) -> None:
    example = read(tmp_path, ROWS[name])
    assert example.prompt == "Q"
    assert example.responses == (response,)
    assert [None if math.isnan(label) else label for label in example.step_labels] == list(labels)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({**ROWS["steps"], "labels": [1, 0]}, ["'labels'", "3 labels, one for each step"]),
        ({**ROWS["steps"], "labels": [1, 0, 2]}, ["'labels'", "from 0 to 1"]),
        ({**ROWS["steps"], "steps": ["a", "...", "c"]}, ["'steps'", "a letter or a digit"]),
        ({**ROWS["steps"], "steps": []}, ["'steps'"]),
        ({**ROWS["processbench"], "label": 3}, ["'label'", "from 0 to 2, or -1"]),
        ({**ROWS["math_shepherd"], "label": "Q Step 1: a * Step 2: b -"}, ["'label'", "+ or -"]),
        ({"input": "no mark", "label": "no mark"}, ["'input'", "Step 1:"]),
        ({"conversations": ROWS["rlhflow"]["conversations"][:3]}, ["Step 1:", "behind each step"]),
        ({"conversations": ROWS["rlhflow"]["conversations"][2:]}, ["Step 1:", "behind each step"]),
        ({"question": {"problem": "Q"}, "label": {"steps": [3]}}, ["'label.steps'", "saw 3"]),
        ({"question": {"problem": "Q"}, "label": {"steps": 3}}, ["'label.steps'", "saw 3"]),
        (
            {
                "question": {"problem": "Q"},
                "label": {"steps": [{"completions": [rated("a", 1)], "chosen_completion": 4}]},
            },
            ["'label.steps'", "chosen_completion"],
        ),
        ({**ROWS["steps"], "labels": 1}, ["'labels'", "a list with a label for each step"]),
    ],
)
def test_rows_that_are_refused(tmp_path: Path, row: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        read(tmp_path, row)
    for word in ["rows.jsonl row 0", *words]:
        assert word in str(caught.value)


@pytest.fixture(scope="module")
def tokenizer(tiny_llama: Path) -> Any:
    return load_tokenizer(str(tiny_llama), trust_remote_code=False)


def test_a_step_is_read_where_the_kind_reads_it(tmp_path: Path, tokenizer: Any) -> None:
    example = read(tmp_path, ROWS["steps"])
    (item,) = tokenized([example], tokenizer, PROCESS, RewardDataConfig()).items
    (row,), (reads,) = item.tokens, item.reads
    parts = cut_parts(example.responses[0], "\n\n", tokenizer).texts
    text = tokenizer.decode(row)
    places = (item.shared + np.flatnonzero(reads)).tolist()
    assert len(places) == len(parts) == 3
    # The tiny tokenizer has a token per character, and none for a line end.
    shown = ["".join(parts[: number + 1]).replace("\n", "") for number in range(3)]
    for place, read_so_far in zip(places, shown, strict=True):
        decoded = tokenizer.decode(row[: place + 1]).replace("<unk>", "")
        assert decoded.endswith(f"assistant: {read_so_far}"), text
    np.testing.assert_array_equal(item.targets[0], example.step_labels)


def test_the_prompt_is_cut_and_the_steps_stay(tmp_path: Path, tokenizer: Any) -> None:
    example = read(tmp_path, {**ROWS["steps"], "prompt": "Q" * 40})
    (whole,) = tokenized([example], tokenizer, PROCESS, RewardDataConfig()).items
    data = RewardDataConfig(max_length=len(whole.tokens[0]) - 20, overlong="cut")
    (item,) = tokenized([example], tokenizer, PROCESS, data).items
    assert item.shared == whole.shared - 20
    np.testing.assert_array_equal(item.tokens[0], whole.tokens[0][20:])
    np.testing.assert_array_equal(item.reads[0], whole.reads[0])


def test_the_loss_is_the_cross_entropy_of_labelled_steps(tmp_path: Path, tokenizer: Any) -> None:
    examples = [read(tmp_path, ROWS[name]) for name in ("steps", "processbench")]
    batch = batch_of(tokenized(examples, tokenizer, PROCESS, RewardDataConfig()).items)
    assert PROCESS.weight(batch) == 4
    logits = torch.tensor([[0.5], [-1.0], [9.0], [2.0], [0.3], [-9.0]])
    loss, sums = PROCESS.loss(batch, logits)
    known = torch.tensor([0.5, -1.0, 2.0, 0.3])
    labels = torch.tensor([1.0, 0.25, 1.0, 0.0])
    expected = binary_cross_entropy(known.sigmoid(), labels, reduction="sum")
    assert loss.item() == pytest.approx(expected.item(), abs=1e-5)
    assert sums["accuracy"].item() == 3
    assert sums["score"].item() == pytest.approx(1.8)
    outputs = [[[0.5, -1.0, 9.0]], [[2.0, 0.3, -9.0]]]
    figures = PROCESS.quick(examples, outputs)
    assert set(PROCESS.chosen_by) <= figures.keys()
    assert figures["loss"] == pytest.approx(expected.item() / 4)
    assert figures["accuracy"] == 0.75


def test_figures_and_baselines(tmp_path: Path) -> None:
    rows = [{"problem": "Q", "steps": ["a", "b", "c"], "label": label} for label in (1, -1, 0, 1)]
    examples = [read(tmp_path, row) for row in rows]
    right = [[[4.0, -4.0, 4.0]], [[4.0, 4.0, 4.0]], [[-4.0, 4.0, 4.0]], [[4.0, 4.0, -4.0]]]
    judges = PROCESS.report(examples, examples, {"trained": right}, seed=1)
    trained = judges["trained"]
    # Labelled: 2 + 3 + 1 + 2 steps, of which the last row's second is misjudged.
    assert trained["count"] == 8
    assert trained["accuracy"]["value"] == 7 / 8
    assert trained["first_wrong"]["value"] == 3 / 4
    # 5 right steps and 3 wrong ones; one wrong one ties with the right ones.
    assert trained["auc"] == pytest.approx((2 * 5 + 0.5 * 5) / 15)
    shares = judges["share of right steps"]
    assert shares["brier"] == pytest.approx(5 / 8 * 3 / 8)
    assert shares["auc"] == 0.5
    # First steps are right in 3 of 4 rows, second ones in 1 of 3.
    place = judges["place of the step"]
    assert place["accuracy"]["value"] == (3 + 2 + 1) / 8
    assert [row[0] for row in PROCESS.table(judges)[1:]] == list(judges)


def test_words_are_a_judge(tmp_path: Path) -> None:
    """A step with "sorry" is wrong. The step behind it has no label."""
    steps = ["indeed 1", "sorry 2", "indeed 3"]
    rows = [{"problem": f"Q{n}", "steps": steps, "label": 1} for n in range(20)]
    examples = [read(tmp_path, row) for row in rows]
    judges = PROCESS.report(examples, examples[:3], {}, seed=1)
    assert judges["words"]["auc"] == 1
    assert judges["words"]["first_wrong"]["value"] == 1


def test_rows_of_processbench_become_steps(tmp_path: Path, tokenizer: Any) -> None:
    """Those of the benchmark where they are here, else some like them."""
    path = PROCESSBENCH
    if not path.exists():
        steps = ["First:\n- 1 + 1 = 2\n\n- 2 + 2 = 4", "Then $x$.", "\\[ 3 \\]"]
        rows = [{"problem": f"Q{n}", "steps": steps[: n % 3 + 1], "label": -1} for n in range(9)]
        path = write_rows(tmp_path / "rows.jsonl", rows)
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    examples = read_examples(str(path), "data.train_files", RewardDataConfig(), among=Process.forms)
    assert len(examples) == len(rows)
    items = tokenized(examples, tokenizer, PROCESS, RewardDataConfig(max_length=10_000)).items
    assert [int(item.reads[0].sum()) for item in items] == [len(row["steps"]) for row in rows]
