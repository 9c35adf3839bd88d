"""A folder with rows, drop-ins and checkpoints without weights, and scorers whose engines follow a
script in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rmrl.config.load import compose_config
from rmrl.config.schema import ScoreConfig
from rmrl.offline.check_scoring import CheckedScoring, check_scoring
from rmrl.offline.score import score_files
from rmrl.offline.summary import Summary
from rmrl.rewards.residency import Residency
from rmrl.rewards.session.scorer import Scorer
from tests.inputs import write_lines
from tests.rewards import parts
from tests.support import fakes
from tests.support.fake_processes import FakeHost

LENGTH = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    if "silent" in solution_str:
        return None
    return {"score": len(solution_str) / 10, "first": solution_str[:1]} if solution_str else 0.0
"""


@dataclass(slots=True)
class Bench:
    """Command lines are written as a user writes them."""

    folder: Path
    tokenizer: Callable[[], Any]
    log: pytest.LogCaptureFixture

    @property
    def notices(self) -> list[str]:
        """Messages of rmrl in this test so far."""
        records = self.log.records
        return [record.getMessage() for record in records if record.name.startswith("rmrl")]

    def rows(self, *responses: Any, name: str = "rows.jsonl", **columns: Any) -> Path:
        """One row per response (or list of responses), each with a prompt of its own."""
        path = self.folder / name
        rows = [
            {"prompt": f"question {i}", "response": response, **columns}
            for i, response in enumerate(responses)
        ]
        write_lines(path, rows)
        return path

    def checked(self, *overrides: str, **keywords: Any) -> CheckedScoring:
        """The rule `length` unless the overrides say otherwise; judges and scalar models run on
        fake engines."""
        models = (
            ()
            if any(text.startswith(("reward.models", "reward_model.")) for text in overrides)
            else ("reward.models=[length]",)
        )
        base = (
            "trainer.device=cpu",
            f"reward.engine.name={fakes.REWARD_ENGINE}",
            "reward.rule_workers=1",
            f"reward.functions_dir={self.folder}/functions",
        )
        config = compose_config([*base, *models, *overrides], ScoreConfig)
        return check_scoring(config, shipped_functions=self.folder, **keywords)

    def scorer(
        self, checked: CheckedScoring, host: FakeHost | None = None, *, rule_workers: int = 1
    ) -> Scorer:
        """As `rmrl.assemble.build` makes it, with processes that are none."""
        made = host or FakeHost()
        residency = Residency(lambda _: made, checked.engines, budget=checked.budget)
        return Scorer(
            checked.specs,
            checked.config.reward,
            residency=residency,
            tokenizer=lambda _: self.tokenizer(),
            rule_workers=rule_workers,
        )

    def score(self, checked: CheckedScoring, host: FakeHost | None = None) -> Summary:
        """`rmrl score` behind its checks."""

        @asynccontextmanager
        async def opened() -> AsyncIterator[Scorer]:
            scorer = self.scorer(checked, host)
            try:
                yield scorer
            finally:
                await scorer.close()

        return score_files(checked, opened)

    def scored(self, data: Path, *overrides: str, out: str = "s.jsonl") -> Summary:
        """Check and score a file; `out`: name in the folder."""
        return self.score(
            self.checked(f"data.files={data}", f"out={self.folder}/{out}", *overrides)
        )


@pytest.fixture
def bench(
    tmp_path: Path, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> Bench:
    functions = tmp_path / "functions"
    functions.mkdir()
    (functions / "length.py").write_text(LENGTH)
    (functions / "judge.py").write_text(
        'SPEC = {"kind": "generative", "fence": False}\n' + parts.JUDGE
    )
    parts.checkpoint(tmp_path / "judge-model")
    parts.checkpoint(tmp_path / "scalar-model", head=True)
    return Bench(tmp_path, lambda: request.getfixturevalue("tokenizer"), caplog)


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return parts.chat_tokenizer(tmp_path_factory.mktemp("tokenizer"))
