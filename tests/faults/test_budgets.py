"""What missing verdicts do to the numbers that train, and when they end the run, with which exit
code."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmrl.algorithms.kl import KLController
from rmrl.config.schema import AlgorithmConfig, KLControlConfig
from rmrl.data.write import write_rows
from rmrl.errors import (
    EngineLostError,
    InfrastructureError,
    MissingVerdictsError,
    RewardError,
    RewardFunctionError,
    StallError,
)
from rmrl.rewards.specs.spec import OnMissing, RewardSpec
from rmrl.trainer.batches import ScoredBatch, add_advantages, keep_informative, response_row
from rmrl.trainer.scored_rollouts import ScoredRollouts
from rmrl.types import Prompt, Response, RewardBatch, Rollouts
from tests.patience import expires
from tests.rewards.parts import engine, fake_host, judge, make_scorer, rows, rule

Score = Callable[..., Any]

NUMBERS = "return 1 / 0 if solution_str == 'failed' else float(solution_str)"
WAYS = """import time
    if solution_str == 'hang': time.sleep(10**6)
    return {'none': None, 'raise': time.sleep}.get(solution_str, 1.0)"""
"""none: unparseable (data); raise: a function in the place of a number (user); hang: a time-out
(infrastructure); else 1.0."""


@pytest.fixture
def score(tokenizer: Any) -> Score:
    """score(specs, rows, **settings): the batch; the scorer is closed afterwards."""

    async def run(
        specs: Sequence[RewardSpec], batch: Sequence[Any], **settings: Any
    ) -> RewardBatch:
        scorer = make_scorer(specs, tokenizer, **settings)
        try:
            return await scorer.score(batch)
        finally:
            await scorer.close()

    return run


def group(*texts: str) -> Rollouts:
    """One prompt and its responses, two tokens each."""
    prompt = Prompt(id="p:0", messages=[{"role": "user", "content": "Q"}], token_ids=(5, 6))
    responses = [
        Response(
            prompt=prompt,
            text=text,
            token_ids=(7, 8),
            logprobs=(-0.5, -0.5),
            finish_reason="stop",
            policy_version=0,
        )
        for text in texts
    ]
    return Rollouts(responses=tuple(responses), group_size=len(texts))


async def advantages(
    score: Score, spec: RewardSpec, texts: Sequence[str], **settings: Any
) -> ScoredBatch:
    rollouts = group(*texts)
    rewards = await score(
        [spec], [response_row(response, group=0) for response in rollouts.responses]
    )
    kept = keep_informative(
        ScoredRollouts(
            step=0, rollouts=rollouts, rewards=rewards, chosen_B=np.ones(len(texts), dtype=bool)
        )
    )
    return add_advantages(
        kept,
        AlgorithmConfig(**{"adv_estimator": "grpo", **settings}),
        KLController(KLControlConfig()),
        decode=repr,
    )[0]


@pytest.mark.parametrize(
    "settings", [{}, {"norm_adv_by_std_in_grpo": False}, {"adv_estimator": "rloo"}]
)
async def test_a_failed_row_is_in_no_baseline_and_in_no_batch(
    score: Score, tmp_path: Path, settings: dict[str, Any]
) -> None:
    spec = rule(tmp_path, "number", NUMBERS)
    four = await advantages(score, spec, ["1", "3", "2", "failed"], **settings)
    three = await advantages(score, spec, ["1", "3", "2"], **settings)
    assert four.rows.tolist() == [0, 1, 2]
    assert [r.text for r in four.responses] == ["1", "3", "2"]
    assert four.train.advantages is not None
    assert three.train.advantages is not None
    assert four.train.advantages.values.tolist() == three.train.advantages.values.tolist()
    # mean 2, standard deviation 1 (of a sample); rloo: 1 - (3 + 2) / 2, 3 - (1 + 2) / 2, 2 - (1 +
    # 3) / 2
    expected = [-1.5, 1.5, 0.0] if settings.get("adv_estimator") == "rloo" else [-1.0, 1.0, 0.0]
    assert [row[0] for row in four.train.advantages.rows()] == pytest.approx(expected, abs=1e-5)


async def test_a_failure_that_counted_as_0_would_have_moved_them(
    score: Score, tmp_path: Path
) -> None:
    spec = rule(tmp_path, "number", NUMBERS, on_missing=OnMissing(policy="impute", value=0.0))
    batch = await advantages(score, spec, ["1", "3", "2", "failed"])
    assert batch.train.advantages is not None
    # mean 1.5, deviations -0.5 1.5 0.5 -1.5, sample variance 5 / 3
    assert batch.train.advantages.values[0] == pytest.approx(-0.5 / math.sqrt(5 / 3), abs=1e-5)


@pytest.mark.parametrize(
    ("texts", "budgets", "said"),
    [
        (("none", "a", "a", "a"), {"max_missing": 0.25}, ""),
        (
            ("none", "none", "a", "a"),
            {"max_missing": 0.25},
            r"2 of 4 responses \(2 unparseable\); reward.max_missing=0.25",
        ),
        (
            ("none", "a", "a", "a"),
            {"max_missing_by_cause": {"data": 0.0}},
            "reward.max_missing_by_cause.data=0 allows",
        ),
        (
            ("raise", "a", "a", "a"),
            {"max_missing_by_cause": {"data": 0.0, "infrastructure": 0.0}},
            "",
        ),
        (
            ("raise", "none", "none", "a"),
            {"max_missing_by_cause": {"user": 0.0, "data": 1.0}},
            r"1 of 4 responses \(1 user_error\)",
        ),
        (("hang", "a", "a", "a"), {"max_missing_by_cause": {"user": 0.0, "data": 0.0}}, ""),
        (
            ("hang", "a", "a", "a"),
            {"max_missing_by_cause": {"infrastructure": 0.1}},
            r"\(1 timeout\); reward.max_missing_by_cause.infra",
        ),
    ],
)
async def test_each_cause_has_its_budget(
    score: Score, tmp_path: Path, texts: tuple[str, ...], budgets: dict[str, Any], said: str
) -> None:
    spec = rule(tmp_path, "ways", WAYS, timeout_s=expires(0.5))
    if not said:
        assert (await score([spec], rows(*texts), **budgets)).keep_B.tolist() == [
            text == "a" for text in texts
        ]
        return
    with pytest.raises(MissingVerdictsError, match=said) as caught:
        await score([spec], rows(*texts), **budgets)
    assert caught.value.exit_code == 3


async def test_rows_that_were_never_asked_are_in_no_budget(score: Score, tmp_path: Path) -> None:
    gate = rule(tmp_path, "gate", "return float(solution_str != 'shut')")
    spec = rule(tmp_path, "ways", WAYS, gates=("gate",))
    batch = await score([gate, spec], rows("shut", "shut", "a", "a"), max_missing=0.0)
    assert batch.scores.status_BC[:, 1].tolist() == ["skipped", "skipped", "ok", "ok"]
    with pytest.raises(MissingVerdictsError, match="2 of 3 responses"):
        await score([gate, spec], rows("shut", "none", "none", "a"), max_missing=0.5)


async def test_errors_of_the_scorer_have_the_codes_that_commands_end_with(
    score: Score, tmp_path: Path
) -> None:
    lost = score([judge(tmp_path)], rows("a"), host=fake_host(p0=2, p1=2))
    miscounts = judge(
        tmp_path,
        "miscounts",
        code=(
            "def rm_preprocess(a, b, c):\n    return b\ndef rm_postprocess(r):\n    return [1.0]"
            " * 9\n"
        ),
    )
    refuses = rule(tmp_path, "refuses", "return None", on_missing=OnMissing(policy="fail"))
    for error, code, work in (
        (EngineLostError, 4, lost),
        (RewardFunctionError, 3, score([miscounts], rows("a"))),
        (RewardError, 3, score([refuses], rows("a"))),
        (
            StallError,
            5,
            score(
                [judge(tmp_path, "slow", timeout_s=expires(0.5))], rows("a"), host=_NeverAnswers()
            ),
        ),
    ):
        with pytest.raises(error) as caught:
            await work
        assert caught.value.exit_code == code


class _NeverAnswers:
    """A host whose process does not answer within the deadline of any scoring call."""

    async def spawn(self, factory: str, settings: Any, *, name: str) -> Any:
        return self

    async def call(self, method: str, *args: Any, timeout_s: float) -> Any:
        if method == "generate":
            raise StallError(f"generate did not finish within {timeout_s:g} s")
        return 0.0

    def remember_family(self) -> None:
        return None

    async def kill(self) -> None:
        return None


async def test_an_engine_that_fails_as_a_whole_is_no_missing_verdict(
    score: Score, tmp_path: Path
) -> None:
    """`max_missing=1` must not hide it."""
    with pytest.raises(InfrastructureError) as caught:
        await score(
            [judge(tmp_path, engine=engine(kwargs={"fail_on_call": 1}))], rows("a"), max_missing=1.0
        )
    assert caught.value.exit_code == 4


RUNNER = """
import contextlib, io, json, sys
from rmrl.main_score import main
done = {}
for name, arguments in json.load(sys.stdin).items():
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        code = main(arguments)
    done[name] = [code, said.getvalue()]
print("RESULT" + json.dumps(done))
"""

CASES: dict[str, tuple[dict[str, object], int, str]] = {
    "all is well": ({}, 0, ""),
    "a typing error": ({"reward.max_missin": 0.5}, 2, "did you mean 'max_missing'"),
    "a budget that is no share": (
        {"reward.max_missing": 1.5},
        2,
        "reward.max_missing=1.5 is a share",
    ),
    "too many missing": (
        {"data.files": "{tmp}/failing.parquet", "over_budget": "fail"},
        3,
        "reward 'number' gave no verdict for 2 of 4 responses (50.0%)",
    ),
    "a rule that cannot be imported": ({"reward.models": "[broken]"}, 2, "broken.py"),
    "no such file": ({"data.files": "{tmp}/none.parquet"}, 6, "none.parquet"),
    "no such column": ({"data.response_key": "answers"}, 6, "answers"),
}


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Every command in one process, since imports take longer than everything else."""
    tmp = tmp_path_factory.mktemp("commands")
    (tmp / "reward_functions").mkdir()
    body = f"def compute_score(solution_str):\n    {NUMBERS}\n"
    (tmp / "reward_functions" / "number.py").write_text(body, encoding="utf-8")
    (tmp / "reward_functions" / "broken.py").write_text("import no_such_module\n", encoding="utf-8")
    for name, texts in (
        ("rows", ("1", "3", "2", "2")),
        ("failing", ("1", "failed", "failed", "2")),
    ):
        table = [{"prompt": [{"role": "user", "content": "Q"}], "response": text} for text in texts]
        write_rows(tmp / f"{name}.parquet", table, overwrite=True)
    keys = {
        "data.files": "{tmp}/rows.parquet",
        "reward.models": "[number]",
        "reward.functions_dir": "{tmp}/reward_functions",
    }
    cases = {}
    for number, (name, (changed, _, _)) in enumerate(CASES.items()):
        given = {**keys, "out": f"{{tmp}}/out{number}.parquet", **changed}
        cases[name] = [f"{key}={value}".replace("{tmp}", str(tmp)) for key, value in given.items()]
    done = subprocess.run(
        [sys.executable, "-c", RUNNER],
        cwd=Path(__file__).parents[2],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        timeout=240,
    )
    line = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    assert line, done.stderr[-3000:]
    return json.loads(line[-1].removeprefix("RESULT"))


@pytest.mark.parametrize("name", CASES)
def test_the_command_ends_with_its_code(ended: dict[str, list[Any]], name: str) -> None:
    code, said = ended[name]
    assert code == CASES[name][1], said
    assert CASES[name][2] in said
    assert "Traceback" not in said
