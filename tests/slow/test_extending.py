"""Every sort of part ships with a copy of rmrl, by what docs/extending.md says and nothing else:
the example as it is printed, its line in the table, and what the page names beside them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rmrl.types import STATUSES
from tests import docs_pages

COPIED = ("rmrl", "tests", "docs", "configs", "reward_functions", "scripts", "examples")
FILES = ("pyproject.toml", "README.md", "CONTRIBUTING.md")


@dataclass(frozen=True, kw_only=True)
class Part:
    block: str
    """The example has this name on the page."""
    file: str
    """Its place in the package."""
    tests: tuple[str, ...]
    """The contracts, as arguments for pytest."""
    edits: Mapping[tuple[str, str], str]
    """(file, text that it has once) -> text that goes behind it."""
    pages: Mapping[str, str] = field(default_factory=dict)
    """New files -> their texts."""


_NEVER = "\n".join(
    f'    ("{status}", "overlap"): "words are counted in this process",'
    for status in STATUSES
    if status not in ("ok", "skipped", "user_error")
)
_SHP_ROWS = """    "shp": [
        {"history": "Salt?", "human_ref_A": "A pinch", "human_ref_B": "No", "labels": 1},
        {"history": "Oil?", "human_ref_A": "No", "human_ref_B": "Some", "labels": 0},
    ],
"""
PARTS = {
    "kind": Part(
        block="mylab/kinds.py",
        file="rmrl/rewards/kinds/overlap/reward.py",
        edits={
            ("rmrl/rewards/kinds/__init__.py", '    "kind",\n    {\n'): (
                '        "overlap": "rmrl.rewards.kinds.overlap.reward:Overlap",\n'
            ),
            ("docs/rewards/kinds.md", "| kind | use it when |\n|---|---|\n"): (
                "| [`overlap`](kinds/overlap.md) | the words of a reference count |\n"
            ),
            ("docs/rewards.md", "| kind | one sentence | runs on |\n|---|---|---|\n"): (
                "| [`overlap`](rewards/kinds/overlap.md) | shared words | this process |\n"
            ),
            ("tests/faults/injections.py", "IMPOSSIBLE: Mapping[tuple[str, str], str] = {\n"): (
                f'{_NEVER}\n    ("user_error", "overlap"): "every reference here has a word",\n'
            ),
        },
        pages={
            "docs/rewards/kinds/overlap.md": "# `overlap`\n\n`least`: words of a reference.\n",
            "rmrl/rewards/kinds/overlap/__init__.py": "",
        },
        tests=(
            "tests/contracts/test_reward_kinds_contract.py",
            "tests/contracts/test_reads_contract.py",
            "tests/faults/test_status_matrix.py",
            "tests/test_docs_facts.py",
            "-k=overlap or table_is_whole or name_is_on_its_page",
        ),
    ),
    "combiner": Part(
        block="mylab/combiners.py",
        file="rmrl/rewards/combine/harmonic.py",
        edits={
            ("rmrl/rewards/combine/table.py", '    "reward.combine",\n    {\n'): (
                '        "harmonic": "rmrl.rewards.combine.harmonic:harmonic",\n'
            ),
            ("docs/rewards/combining.md", "| `combine` | reward | by hand |\n|---|---|---|\n"): (
                "| `harmonic` | weighted harmonic mean | |\n"
            ),
        },
        tests=(
            "tests/rewards/combine/test_properties.py",
            "tests/test_docs_facts.py",
            "-k=harmonic or name_is_on_its_page",
        ),
    ),
    "transform": Part(
        block="mylab/transforms.py",
        file="rmrl/rewards/transforms/power.py",
        edits={
            ("rmrl/rewards/transforms/table.py", '    "transform kind",\n    {\n'): (
                '        "power": "rmrl.rewards.transforms.power:Power",\n'
            ),
            (
                "docs/rewards/combining.md",
                "| kind | result | entries (default) |\n|---|---|---|\n",
            ): "| `power` | the score to a power | `exponent` |\n",
            ("tests/rewards/combine/test_properties.py", '    "sigmoid": {},\n'): (
                '    "power": {"exponent": 0.5},\n'
            ),
        },
        tests=(
            "tests/rewards/combine/test_properties.py",
            "tests/rewards/transforms",
            "tests/test_docs_facts.py",
            "-k=power or all_transforms or does_not_matter or finite_number",
        ),
    ),
    "format of `rmrl eval`": Part(
        block="mylab/formats.py",
        file="rmrl/evaluation/formats/shp.py",
        edits={
            ("rmrl/evaluation/formats/all_formats.py", '    "eval.format",\n    {\n'): (
                '        "shp": "rmrl.evaluation.formats.shp:SHP",\n'
            ),
            ("docs/evaluation.md", "| `pandalm` | as published |"): (
                " a tie is a label of its own | |\n| `shp` | as published |"
            ),
            (
                "tests/evaluation/benchmark_rows.py",
                "ROWS: Mapping[str, Sequence[Mapping[str, Any]]] = {\n",
            ): _SHP_ROWS,
            ("tests/evaluation/benchmark_rows.py", '    "id", "label",'): ' "labels",',
        },
        tests=("tests/contracts/test_eval_formats.py", "-k=shp"),
    ),
    "wire of `rmrl serve`": Part(
        block="mylab/serving.py",
        file="rmrl/serve/wires/best.py",
        edits={
            ("rmrl/serve/wires/__init__.py", '    "serve.wires",\n    {\n'): (
                '        "best": "rmrl.serve.wires.best:BestOf",\n'
            ),
        },
        tests=("tests/serve/test_gate.py", "-k=first_error"),
    ),
    "advantage": Part(
        block="mylab/advantages.py",
        file="rmrl/algorithms/advantages/median_baseline.py",
        edits={
            ("rmrl/algorithms/__init__.py", '    "algorithm.adv_estimator",\n    {\n'): (
                '        "median_baseline":'
                ' "rmrl.algorithms.advantages.median_baseline:median_baseline",\n'
            ),
            ("docs/algorithms.md", "# Algorithms\n"): (
                "\n| `median_baseline` | reward minus median | "
                "[x](https://arxiv.org/abs/0000.00000) |\n"
            ),
        },
        tests=("tests/contracts/test_algorithms_contract.py", "-k=median_baseline"),
    ),
    "loss": Part(
        block="mylab/losses.py",
        file="rmrl/algorithms/losses/capped.py",
        edits={
            (
                "rmrl/algorithms/__init__.py",
                '    "actor_rollout_ref.actor.policy_loss.loss_mode",\n    {\n',
            ): '        "capped": "rmrl.algorithms.losses.capped:capped",\n',
            ("docs/algorithms.md", "takes precedence, and several recipes can be combined:\n"): (
                "\n| `capped` | a ratio of at most 1 + clip | "
                "[x](https://arxiv.org/abs/0000.00000) |\n"
            ),
        },
        tests=("tests/contracts/test_algorithms_contract.py", "-k=capped"),
    ),
    "command": Part(
        block="mylab/tally.py",
        file="rmrl/commands/tally.py",
        edits={
            ("rmrl/commands/__init__.py", "PURPOSES = {\n"): (
                '    "tally": "count the statuses of a reward in a scored file",\n'
            ),
        },
        tests=("tests/test_usage.py",),
    ),
}


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy with all parts."""
    folder = tmp_path_factory.mktemp("extended")
    for name in COPIED:
        shutil.copytree(
            docs_pages.ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in FILES:
        shutil.copy(docs_pages.ROOT / name, folder / name)
    examples = {block.name: block.code for block in docs_pages.blocks("python")}
    for part in PARTS.values():
        for name, text in {part.file: examples[part.block], **part.pages}.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        for (name, anchor), addition in part.edits.items():
            text = (folder / name).read_text(encoding="utf-8")
            assert text.count(anchor) == 1, (name, anchor)
            (folder / name).write_text(text.replace(anchor, anchor + addition), encoding="utf-8")
    return folder


def run_in(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.parametrize("name", PARTS)
def test_a_part_passes_its_contracts_as_printed(name: str, extended: Path) -> None:
    done = run_in(
        extended, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *PARTS[name].tests
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


def test_the_command_counts(extended: Path) -> None:
    scored = extended / "scored.jsonl"
    scored.write_text(
        '{"prompt": "p", "response": "r", "score_judge": 1, "status_judge": "ok", "reward": 1}\n',
        encoding="utf-8",
    )
    done = run_in(extended, "-m", "rmrl.cli", "tally", "scored.jsonl", "judge")
    assert done.stdout.split() == ["1", "ok"], done.stderr
    missing = run_in(extended, "-m", "rmrl.cli", "tally", "scored.jsonl", "other")
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "no column status_other" in missing.stderr


@pytest.mark.parametrize("name", PARTS)
def test_the_page_names_every_file_that_a_part_takes(name: str) -> None:
    page = (docs_pages.DOCS / "extending.md").read_text(encoding="utf-8")
    files = [file for file, _ in PARTS[name].edits]
    assert [file for file in files if file not in page] == []
