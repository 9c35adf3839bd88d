"""`rmrl score --dry-run`: what would be asked, while no engine starts and nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmrl.main_score import main
from rmrl.offline.dry_run import dry_run
from rmrl.tokenizer import load_tokenizer
from tests.engine_models import write_tokenizer
from tests.inputs import write_lines
from tests.offline.conftest import Bench

JUDGE = (
    "reward.specs.judge.sampling={max_tokens: 16, temperature: 0.0}",
    "reward.models=[length,judge,quality]",
)

NOT_STARTED = "reward.engine.name=hf"
"""An engine, for dry runs, which start none."""


def models(folder: Path) -> list[str]:
    """Tokenizers with a token per character."""
    words: list[str] = []
    for name, model in (("judge", "judge-model"), ("quality", "scalar-model")):
        write_tokenizer(folder / model)
        words.append(f"reward.specs.{name}.path={folder / model}")
    return words


async def test_a_dry_run_counts_requests_and_shows_the_first_inputs(bench: Bench) -> None:
    """The judge reads `What? four`, 10 tokens, and `What? fivefive`, 14; the reward model reads
    28 and 32, `user: What?`, `assistant: ` and two ends with it. Equal ones are asked once."""
    rows = []
    for text in ("four", "five", "five", "fivefive"):
        rows.append({"prompt": "What?", "response": text})
    data = write_lines(bench.folder / "rows.jsonl", rows)
    words = (f"data.files={data}", f"out={bench.folder}/s.jsonl", *JUDGE, *models(bench.folder))
    checked = bench.checked(*words, NOT_STARTED)
    before = sorted(bench.folder.rglob("*"))
    text = await dry_run(checked)
    assert sorted(bench.folder.rglob("*")) == before
    assert text.splitlines() == [
        "4 rows with 4 responses would be scored; nothing was started or written",
        "  reward   is asked of        requests  tokens in  tokens out at most",
        "  length   no model (rule)     4 calls          -                   -",
        "  judge    judge-model (hf)          3         34                  48",
        "  quality  scalar-model (hf)         3         88                   -",
        "",
        "first input of judge:",
        "  | What? four",
        "",
        "first input of quality:",
        "  | user: What?<unk>assistant: four<unk>",
    ]


def test_a_dry_run_counts_what_a_job_asks(bench: Bench) -> None:
    data = bench.rows("four", "five", "fivefive")
    judged = bench.checked(
        f"data.files={data}", f"out={bench.folder}/s.jsonl", *JUDGE, *models(bench.folder)
    )
    folder = bench.folder / "judge-model"
    bench.tokenizer = lambda: load_tokenizer(str(folder), trust_remote_code=False)
    costs = bench.score(judged).costs
    assert (costs["judge"].tokens_in, costs["quality"].tokens_in) == (49, 103)


async def test_a_long_file_is_estimated_from_its_first_responses(bench: Bench) -> None:
    data = bench.rows(*["four"] * 400)
    checked = bench.checked(
        f"data.files={data}", *JUDGE, *models(bench.folder), NOT_STARTED, needs_out=False
    )
    lines = (await dry_run(checked)).splitlines()
    assert lines[0].startswith("400 rows with 400 responses")
    rule, judge = lines[2:4]
    assert rule.split()[:6] == ["length", "no", "model", "(rule)", "400", "calls"]
    # `question 0 four` has 15 tokens: 10 of 256 rows have one digit, 90 two, 156 three
    tokens = round((10 * 15 + 90 * 16 + 156 * 17) * 400 / 256)
    assert judge.split()[3:] == ["about", "400", "about", f"{tokens:,}", "about", "6,400"]
    assert "estimated from the first 256 responses" in lines


async def test_a_dry_run_of_a_group_judge_and_a_server(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmrl.offline.check_scoring.reward_preflight", lambda *_, **__: [])
    data = write_lines(
        bench.folder / "rows.jsonl",
        [{"prompt": "What?", "responses": ["a", "b", "c"]}, {"prompt": "Who?", "response": "d"}],
    )
    server = "{url: 'http://127.0.0.1:9/v1', model: big, requests_per_minute: 60}"
    checked = bench.checked(
        f"data.files={data}",
        "reward.models=[pairs,far]",
        "reward.specs.pairs.kind=group",
        NOT_STARTED,
        f"reward.specs.pairs.path={bench.folder}/judge-model",
        'reward.specs.far={kind: generative, rubric: "Is it right?"}',
        f"reward.specs.far.server={server}",
        "reward.specs.far.sampling={choice: ['1', '2'], temperature: 0.0}",
        needs_out=False,
    )
    write_tokenizer(bench.folder / "judge-model")
    text = await dry_run(checked)
    pairs, far, rate = text.splitlines()[2:5]
    # three pairs in two orders; the lone response to the other prompt has nothing to be compared
    # with
    assert pairs.split()[:4] == ["pairs", "judge-model", "(hf)", "6"]
    assert far.split()[:5] == ["far", "big", "at", "127.0.0.1", "4"]
    assert rate == "far: at least 4 s, by its 60 requests a minute"
    assert "  | [user] The text between" in text
    assert "  | Is it right?" in text


def test_the_command(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    data = bench.rows("four", "five")
    words = [
        f"data.files={data}",
        "reward.models=[length]",
        f"reward.functions_dir={bench.folder}/functions",
        "reward.rule_workers=1",
        "trainer.device=cpu",
        "--dry-run",
    ]
    before = sorted(bench.folder.iterdir())
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("2 rows with 2 responses would be scored; nothing was started")
    assert "  length  no model (rule)   2 calls          -                   -\n" in shown
    assert main([*words, f"out={bench.folder}/s.jsonl"]) == 0
    assert sorted(bench.folder.iterdir()) == before
    assert main([*words, "data.files=none.jsonl"]) == 6
