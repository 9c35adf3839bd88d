"""Figures that others published, recomputed from their recorded outputs with nothing but a CPU.

Where only a part of the published rows is at hand, the published figure must lie in the interval of
the figure of that part, and the part's own figure is pinned beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import pytest
from sklearn.metrics import cohen_kappa_score

from rmrl.config.load import compose_config
from rmrl.config.schema import EvalConfig
from rmrl.evaluation.check_eval import check_eval
from rmrl.evaluation.judgements import category, truth
from rmrl.evaluation.report import Evaluation
from rmrl.evaluation.run_eval import run_eval
from tests.inputs import read_lines, write_lines

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"
PANDALM_COLUMNS = (
    "eval.columns={response1: response_1, response2: response_2, annotator1: annotators.0,"
    " annotator2: annotators.1, annotator3: annotators.2, motivation_app: source}"
)

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"the recorded outputs are not at {DATA}")


def evaluated(tmp_path: Path, *overrides: str) -> Evaluation:
    config = compose_config([*overrides, f"out={tmp_path / 'out'}"], EvalConfig)
    functions = ROOT / "reward_functions"
    checked = check_eval(config, shipped_functions=functions)
    return run_eval(checked)


# --- LLMBar: all 419 pairs, 14 judges


@pytest.fixture(scope="module")
def llmbar(tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    return evaluated(
        tmp_path_factory.mktemp("llmbar"),
        "eval.format=llmbar",
        f"eval.recorded={DATA / 'judge' / 'llmbar_judge_outputs.jsonl'}",
    )


def published_kappa(labels: Sequence[str], verdicts: Sequence[str]) -> float:
    """kappa_False and kappa_True as they are published: only the label "1" is counted, p_o = P(both
    say 1) and p_e = P(label is 1) P(verdict is 1). Cohen's kappa of the same verdicts is another
    number, and the one in our report."""
    count = len(labels)
    both = sum(a == b == "0" for a, b in zip(labels, verdicts, strict=True)) / count
    chance = labels.count("0") / count * (list(verdicts).count("0") / count)
    return (both - chance) / (1 - chance)


@needs_data
def test_every_figure_of_llmbars_statistics(llmbar: Evaluation) -> None:
    """630 figures: 14 judges on 5 subsets, 9 each."""
    checked = 0
    for row in read_lines(DATA / "judge" / "llmbar_published_stats.jsonl"):
        judge = llmbar.judges[f"{row['evaluator']} {row['mode']}"]
        outcomes = [o for o in judge.outcomes if o.comparison.subset == row["subset"]]
        labels = [truth(outcome.comparison) for outcome in outcomes]
        orders = [[category(outcome.choices[order]) for outcome in outcomes] for order in (0, 1)]
        count = len(outcomes)
        right = [sum(a == b for a, b in zip(labels, verdicts, strict=True)) for verdicts in orders]
        both = sum(len({*each}) == 1 for each in zip(labels, *orders, strict=True))
        equal = sum(a == b for a, b in zip(*orders, strict=True))
        ours = {
            "correct_False": right[0],
            "correct_True": right[1],
            "correct_both": both,
            "equal": equal,
        }
        for name, number in ours.items():
            assert row[name].startswith(f"{number} / {count} ="), (row["evaluator"], name)
        average = 100 * sum(outcome.credit for outcome in outcomes) / count
        assert float(row["correct_average"].rstrip("%")) == pytest.approx(average)
        kappas = [published_kappa(labels, verdicts) for verdicts in orders]
        assert row["kappa_False"] == pytest.approx(kappas[0])
        assert row["kappa_True"] == pytest.approx(kappas[1])
        assert row["kappa_average"] == pytest.approx(sum(kappas) / 2)
        # A missing verdict counts as the second response there.
        filled = [[verdict or "1" for verdict in verdicts] for verdicts in orders]
        assert row["kappa_agreement"] == pytest.approx(cohen_kappa_score(*filled))
        checked += 9
    assert checked == 630


@needs_data
def test_our_kappa_of_llmbar_is_cohens(llmbar: Evaluation) -> None:
    """GPT-4 with chain of thought on natural pairs, first order: published 0.264; 94 of 100 right,
    42 labels and 44 verdicts name the first one, so (0.94 - 0.5096) / (1 - 0.5096) = 0.8776."""
    outcomes = [o for o in llmbar.judges["GPT-4 CoT"].outcomes if o.comparison.subset == "Natural"]
    labels = [truth(outcome.comparison) for outcome in outcomes]
    assert cohen_kappa_score(labels, [o.first for o in outcomes]) == pytest.approx(0.8776, abs=1e-4)
    assert published_kappa(labels, [o.first for o in outcomes]) == pytest.approx(0.264, abs=1e-3)


# --- PandaLM: 806 of 999 pairs


@pytest.fixture(scope="module")
def pandalm(tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    return evaluated(
        tmp_path_factory.mktemp("pandalm"),
        "eval.format=pandalm",
        f"data.files={DATA / 'pref' / 'pandalm_human.jsonl'}",
        f"eval.recorded={DATA / 'judge' / 'pandalm_judges.jsonl'}",
        PANDALM_COLUMNS,
    )


@needs_data
def test_kappa_of_pandalms_annotators(pandalm: Evaluation) -> None:
    """Published for the 999 pairs: 0.85, 0.88 and 0.86 (.852, .879, .862); one standard error of a
    kappa near 0.86 over 806 pairs is about 0.015."""
    kappas = pandalm.numbers["agreement"]["people_kappa"]
    assert kappas == [pytest.approx(k, abs=5e-4) for k in (0.856, 0.875, 0.872)]
    for ours, published in zip(kappas, (0.852, 0.879, 0.862), strict=True):
        assert ours == pytest.approx(published, abs=0.015)
    assert pandalm.numbers["agreement"]["people_alpha"] == pytest.approx(0.868, abs=2e-3)


@needs_data
@pytest.mark.parametrize(
    ("judge", "published", "here"),
    [
        # accuracy, macro precision, recall and F1 (data/compute_metrics.py)
        ("gpt-3.5-turbo", (0.7107, 0.5879, 0.5736, 0.5755), (0.718, 0.582, 0.575, 0.575)),
        ("pandalm-7b", (0.6677, 0.5738, 0.5750, 0.5743), (0.664, 0.571, 0.573, 0.572)),
    ],
)
def test_pandalms_judges(
    pandalm: Evaluation,
    judge: str,
    published: tuple[float, ...],
    here: tuple[float, ...],
) -> None:
    figures = list(pandalm.numbers["judges"][judge]["figures"].values())
    assert figures == [pytest.approx(value, abs=6e-4) for value in here]
    assert figures == [pytest.approx(value, abs=0.02) for value in published]


# --- Qwen2.5-Math: 85 of 100 problems


@needs_data
def test_best_of_8_and_majority_of_qwen_math(tmp_path: Path) -> None:
    """Published for the 100 problems: 0.94 by the reward model, 0.93 by the majority."""
    file = DATA / "rollouts" / "qwen_math_rm8.jsonl"
    made = evaluated(
        tmp_path,
        "eval.format=best_of_n",
        f"data.files={file}",
        f"eval.recorded={file}",
        "eval.columns={prompt: question, answers: preds, ground_truth: gold, subset: level}",
        "eval.recorded_columns.scores=rm_scores",
    ).numbers
    (judge,) = made["judges"].values()
    best = judge["accuracy"]
    majority = made["controls"]["majority"]["accuracy"]
    assert best["value"] == pytest.approx(81 / 85)
    assert best["low"] < 0.94 < best["high"]
    assert majority["low"] < 0.93 < majority["high"]
    # 80 of 85 where the answer that comes first wins a tie; one tie is shared by halves here.
    assert majority["value"] == pytest.approx(0.953, abs=0.013)


# --- GSM8K: 4252 of 5276 recorded solutions


@needs_data
def test_the_labels_of_gsm8k_solutions(tmp_path: Path) -> None:
    """The rule gives the recorded label of every solution, through the path of a reward."""
    made = evaluated(
        tmp_path,
        "eval.format=absolute",
        f"data.files={DATA / 'rollouts' / 'gsm8k_openai_solutions.jsonl'}",
        "eval.columns={prompt: question, value: is_correct, ground_truth: gold, subset: model}",
        "reward.models=[gsm8k]",
        "reward.rule_workers=1",
    ).numbers
    values = made["judges"]["gsm8k"]["values"]
    assert (values["equal"]["value"], values["missing"]) == (1, 0)
    assert values["count"] == values["equal"]["count"] == 4252


# --- the counting itself, without the recorded outputs


def test_pairs_of_people_by_hand(tmp_path: Path) -> None:
    """Three annotators on four pairs; the kappas are (3/4 - 3/8) / (1 - 3/8) = 0.6 where one vote
    of four differs, and 0.2 where two do."""
    votes = [(1, 1, 1), (2, 2, 1), (0, 0, 0), (1, 2, 1)]
    rows = [
        {
            "id": str(number), "instruction": "i", "response1": "a", "response2": "b",
            "annotator1": a, "annotator2": b, "annotator3": c,
        }
        for number, (a, b, c) in enumerate(votes)
    ]  # fmt: skip
    file = write_lines(tmp_path / "rows.jsonl", rows)
    recorded = tmp_path / "judge.jsonl"
    results = ["1", "2", "Tie", "garbage"]
    write_lines(recorded, [{"id": str(i), "result": r} for i, r in enumerate(results)])
    made = evaluated(
        tmp_path, "eval.format=pandalm", f"data.files={file}", f"eval.recorded={recorded}"
    ).numbers
    people = list(zip(*votes, strict=True))
    by_hand = [cohen_kappa_score(a, b) for a, b in combinations(people, 2)]
    assert made["agreement"]["people_kappa"] == [pytest.approx(kappa) for kappa in by_hand]
    (judge,) = made["judges"].values()
    # Labels 1, 2, tie, 1: three verdicts agree, one is missing.
    assert judge["accuracy"]["value"] == 0.75
    assert judge["missing"] == 1
    assert judge["of_verdicts"]["value"] == 1
