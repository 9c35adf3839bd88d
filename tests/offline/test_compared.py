"""What two reward sections share is computed once, also over an end in the middle."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rmrl.config.load import compose_config
from rmrl.config.schema import CompareConfig
from rmrl.errors import EngineLoadError
from rmrl.evaluation.compare.check_comparison import CheckedComparison, check_comparison
from rmrl.evaluation.compare.run_compare import run_compare
from rmrl.offline.check_scoring import CheckedScoring
from rmrl.rewards.session.scorer import Scorer
from tests.offline.conftest import Bench
from tests.rewards import parts
from tests.support.fake_processes import FakeHost

SECTION = """
models: {models}
functions_dir: {folder}/functions
rule_workers: 1
engine: {{name: "tests.rewards.parts:RecordingEngine"}}
specs:
  judge: {{path: {folder}/judge-model}}
{more}
"""
QUALITY = "  quality: {{path: {folder}/scalar-model}}"
RESPONSES = [f"response {number}" for number in range(40)]


@pytest.fixture
def rows(bench: Bench) -> Path:
    return bench.rows(*RESPONSES)


def checked(bench: Bench, rows: Path, *overrides: str) -> CheckedComparison:
    sections: list[Path] = []
    for name, models, more in (("a", "[judge]", ""), ("b", "[judge, quality, length]", QUALITY)):
        path = bench.folder / f"{name}.yaml"
        further = more.format(folder=bench.folder)
        path.write_text(SECTION.format(models=models, folder=bench.folder, more=further))
        sections.append(path)
    config = compose_config(
        [f"data.files={rows}", f"out={bench.folder}/out", "trainer.device=cpu", *overrides],
        CompareConfig,
    )
    return check_comparison(config, sections, shipped_functions=bench.folder)


def compared(
    bench: Bench, comparison: CheckedComparison, hosts: tuple[FakeHost, FakeHost] | None = None
) -> dict[str, Any]:
    def opener(scoring: CheckedScoring, host: FakeHost) -> Any:
        @asynccontextmanager
        async def opened() -> AsyncIterator[Scorer]:
            scorer = bench.scorer(scoring, host)
            try:
                yield scorer
            finally:
                await scorer.close()

        return opened

    hosts = hosts or (FakeHost(), FakeHost())
    opened = list(map(opener, comparison.scorings, hosts))
    return run_compare(comparison, opened=opened)


def requests_of(method: str) -> list[Any]:
    requests: list[Any] = []
    for name, sent in parts.calls:
        if name == method:
            requests += sent
    return requests


def test_a_shared_judge_is_asked_once(bench: Bench, rows: Path) -> None:
    parts.calls.clear()
    report = compared(bench, checked(bench, rows))
    judged = requests_of("generate")
    assert len(judged) == len(set(judged)) == 40
    assert len(requests_of("classify")) == 40
    first = report["sections"]["a"]["costs"]["judge"]
    second = report["sections"]["b"]["costs"]["judge"]
    assert (first["computed"], first["cached"]) == (40, 0)
    assert (second["computed"], second["cached"]) == (0, 40)
    assert first["tokens_in"] == second["cached_tokens_in"] > 0
    assert (second["tokens_in"], second["latency_s"]) == (0, 0)
    assert report["sections"]["b"]["costs"]["quality"]["computed"] == 40
    assert report["sections"]["a"]["seconds"] > 0
    # The scores of the judge are those of the first section.
    for flip in report["flips"]:
        assert flip["a"]["score_judge"] == flip["b"]["score_judge"]


def test_a_comparison_that_ended_early_goes_on(bench: Bench, rows: Path) -> None:
    parts.calls.clear()
    comparison = checked(bench, rows, "data.batch_size=8")
    with pytest.raises(EngineLoadError):
        # The engine of the second section dies in its third batch, and its successor at once.
        compared(bench, comparison, (FakeHost(), FakeHost(deaths={0: 4, 1: 1})))
    judged = len(requests_of("generate"))
    assert judged == 40
    before = len(requests_of("classify"))
    assert before < 40
    report = compared(bench, checked(bench, rows, "data.batch_size=8"))
    assert len(requests_of("generate")) == 40
    assert len(requests_of("classify")) == 40
    costs = report["sections"]["b"]["costs"]
    assert costs["judge"]["cached"] == 40
    assert report["agreement"]["count"] == 40


def test_a_comparison_of_a_section_with_itself_agrees(bench: Bench, rows: Path) -> None:
    comparison = checked(bench, rows)
    (bench.folder / "b.yaml").write_text((bench.folder / "a.yaml").read_text())
    same = check_comparison(
        comparison.config,
        [bench.folder / "a.yaml", bench.folder / "b.yaml"],
        shipped_functions=bench.folder,
    )
    report = compared(bench, same)
    assert report["agreement"]["equal"] == 1.0
    assert report["flips"] == []
    assert report["difference"]["difference"] == 0.0
