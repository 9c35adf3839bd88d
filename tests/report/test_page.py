"""The page: texts stay text, only its own scripts may run, and the data are those of the file."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmrl.errors import ConfigError, DataError
from rmrl.offline.scored_responses import responses
from rmrl.report.numbers import gathered
from rmrl.report.page import histograms, island, render
from rmrl.report.sources import labels_of, sources
from rmrl.report.statistics import disputed
from rmrl.report.texts import Texts, chosen
from tests.report.samples import HOSTILE, SAMPLES, sample, write_run


def data_of(page: str, name: str) -> Any:
    match = re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', page, re.S)
    assert match is not None
    return json.loads(match[1])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "runs" / "demo")


@pytest.fixture
def page(run: Path) -> str:
    return render(sources([run]))


def test_a_text_in_the_island_is_what_it_was_and_never_markup() -> None:
    text = island({"a": HOSTILE, "b": "<!--", "c": "]]>&amp;\x00"})
    assert not re.search("[<>&\u2028\u2029\ud800-\udfff\x00]", text)
    assert json.loads(text) == {"a": HOSTILE, "b": "<!--", "c": "]]>&amp;\x00"}
    text.encode("utf-8")


def test_hostile_responses_leave_the_page_with_its_own_elements(page: str) -> None:
    assert page.count("<script") == 3
    assert page.count("</script>") == 3
    assert "<img" not in page
    assert any(HOSTILE in text for text in data_of(page, "texts"))


def test_only_the_scripts_and_styles_of_the_page_may_run(page: str) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    rules = html.unescape(policy[1])
    assert rules.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in rules
    for tag in ("script", "style"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.S)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in rules


def test_the_page_names_nothing_outside_itself(page: str) -> None:
    assert not re.search(r"(?:src|href)=[\"']?https?:", page)
    assert "innerHTML" not in page.replace("uPlot", "")
    assert "@import" not in page


def test_a_title_is_escaped(run: Path) -> None:
    assert "<title>a &lt;b&gt; &amp; c</title>" in render(sources([run]), title="a <b> & c")


def test_the_charting_library_is_the_one_that_is_noted() -> None:
    assets = Path(__file__).resolve().parents[2] / "rmrl" / "report" / "assets"
    notice = (assets / "NOTICE.md").read_text(encoding="utf-8")
    for name in ("uplot.min.js", "uplot.min.css"):
        assert hashlib.sha256((assets / name).read_bytes()).hexdigest() in notice
    assert "MIT License" in (assets / "uplot.LICENSE").read_text(encoding="utf-8")


def test_samples_carry_what_explains_their_reward(page: str) -> None:
    source = data_of(page, "data")["sources"][0]
    texts = data_of(page, "texts")
    assert source["components"] == ["rule", "judge"]
    assert source["samples"]["reward"] == [1.2, 0.9, None, 1.6]
    rule, judge = source["samples"]["parts"]
    assert judge["score"] == [0.2, 0.9, None, 0.6]
    assert judge["value"] == [0.4, 1.8, None, 1.2]  # scale by 2
    assert rule["value"] == [1.0, 0.0, 0.0, 1.0]
    assert judge["weight"] == [0.5] * 4
    assert texts[judge["raw"][0]] == "Score 0.2"
    assert texts[judge["rendered"][1]] == "Rate: a long way to say eight"
    assert texts[judge["status"][2]] == "unparseable"
    assert source["rules"]["transforms"] == {"judge": "scale"}


def test_the_overview_says_what_the_run_was(run: Path) -> None:
    config = run / "config.yaml"
    config.write_text(config.read_text() + "actor_rollout_ref: {model: {path: models/small}}\n")
    record = {
        "started": "2026-03-01T10:00:00+0000",
        "command": "rmrl train trainer.steps=2 a.token=abc",
    }
    (run / "run.json").write_text(json.dumps(record))
    about = data_of(render(sources([run])), "data")["sources"][0]["about"]
    assert about == [
        ["rewards", "rule (weight 1), judge (weight 0.5)"],
        ["combined by", "weighted_sum"],
        ["model", "models/small"],
        ["started", "2026-03-01T10:00:00+0000"],
        ["command", "rmrl train trainer.steps=2 'a.token=<secret>'"],
    ]


def test_the_overview_shows_the_hints_of_a_run(run: Path) -> None:
    assert data_of(render(sources([run])), "data")["sources"][0]["hints"] == []
    rows = [{"step": 2, "hint": f"step 2: look at sample 1: {HOSTILE}"}, {"step": 2}]
    (run / "hints.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"st')
    hints = data_of(render(sources([run])), "data")["sources"][0]["hints"]
    assert hints == [[2, f"look at sample 1: {HOSTILE}"]]


def test_a_watcher_has_no_weight(run: Path) -> None:
    config = run / "config.yaml"
    config.write_text("reward: {models: [rule, judge], specs: {judge: {watch: {rows: 0.25}}}}")
    source = data_of(render(sources([run])), "data")["sources"][0]
    assert source["about"][0] == ["rewards", "rule (weight 1), judge (weight 0)"]


def test_the_overview_says_where_the_time_went(run: Path) -> None:
    times = data_of(render(sources([run])), "data")["sources"][0]["times"]
    assert (times["seconds"], times["of"]) == (3.0, "1 step")
    assert "Where the time went" in render(sources([run]))


def test_the_overview_says_what_is_known_of_a_run_without_a_record(run: Path) -> None:
    (run / "run.json").write_text("[cut")
    about = data_of(render(sources([run])), "data")["sources"][0]["about"]
    assert about == [
        ["rewards", "rule (weight 1), judge (weight 0.5)"],
        ["combined by", "weighted_sum"],
    ]


def test_a_transform_that_compares_responses_is_named_and_not_computed(run: Path) -> None:
    config = run / "config.yaml"
    config.write_text(
        "reward: {models: [rule, judge], transforms: {judge: {kind: standardize, by: group}}}"
    )
    source = data_of(render(sources([run])), "data")["sources"][0]
    assert source["samples"]["parts"][1]["value"] is None
    assert source["rules"]["transforms"]["judge"] == "standardize(group)"
    config.write_text("reward: {models: [rule, judge], transforms: {judge: {kind: unknown}}}")
    source = data_of(render(sources([run])), "data")["sources"][0]
    assert source["samples"]["parts"][1]["value"] is None
    assert source["rules"]["transforms"]["judge"] == "cannot be read"


def test_a_scored_file_with_lists_of_responses(tmp_path: Path) -> None:
    path = tmp_path / "scored.jsonl"
    row = {
        "prompt": "p",
        "responses": ["a", "b"],
        "reward": [1.0, None],
        "score_j": [1.0, None],
        "status_j": ["ok", "timeout"],
        "detail_j": ["", "too slow"],
        "raw_j": ["1", ""],
    }
    path.write_text(json.dumps(row) + "\n")
    (tmp_path / "reward.yaml").write_text("models: [j]\nweights: [2.0]\n")
    page = render(sources([path], config=tmp_path / "reward.yaml"))
    source = data_of(page, "data")["sources"][0]
    assert source["rows"] == 2
    assert source["samples"]["reward"] == [1.0, None]
    assert source["samples"]["parts"][0]["weight"] == [2.0, 2.0]
    assert source["verdicts"] == {"j": {"ok": 1, "timeout": 1}}


def test_two_runs_share_the_edges_of_their_distributions(tmp_path: Path) -> None:
    first = write_run(tmp_path / "a" / "run")
    second = write_run(
        tmp_path / "b" / "run", [sample(1, 0, "x", rule=3.0, judge=0.5), *SAMPLES[:1]]
    )
    data = data_of(render(sources([first, second])), "data")
    assert [source["label"] for source in data["sources"]] == ["a/run", "b/run"]
    rule = data["histograms"]["rule"]
    assert (rule["edges"][0], rule["edges"][-1]) == (0.0, 3.0)
    assert [sum(counts) for counts in rule["counts"]] == [4, 2]


def test_of_a_long_file_the_extremes_and_an_even_rest_are_listed(tmp_path: Path) -> None:
    lines = [sample(1, i, f"text {i}", rule=float(i), judge=0.5) for i in range(100)]
    path = write_run(tmp_path / "run", lines) / "samples.jsonl"
    numbers = gathered(responses(path))
    picked = chosen(numbers, disputed(numbers), limit=20)
    assert len(picked) == 20
    assert set(range(5)) | set(range(95, 100)) <= set(picked.tolist())
    assert np.diff(picked).max() < 40
    page = render(sources([tmp_path / "run"]), most_samples=20)
    source = data_of(page, "data")["sources"][0]
    assert (source["rows"], len(source["samples"]["reward"])) == (100, 20)
    assert source["summary"]["rule"]["count"] == 100


def test_texts_are_stored_once_and_long_ones_lose_their_middle() -> None:
    texts = Texts(limit=20)
    assert [texts.number("abc"), texts.number("abc"), texts.number(""), texts.number(None)] == [
        *(0, 0, -1, -1)
    ]
    texts.number("a" * 25 + "b" * 25)
    assert texts.texts[1] == f"{'a' * 10}\n[... 30 characters left out ...]\n{'b' * 10}"
    texts.number({"answer": "7"})
    assert texts.texts[2] == '{"answer": "7"}'


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        (".", "", r"holds no samples\.jsonl"),
        ("nothing", "", "does not exist; need the folder of a run"),
        ("page.txt", "x", r"'\.txt'"),
        ("rows.jsonl", '{"prompt": "p", "response": "r"}\n', "only the columns prompt, response"),
    ],
)
def test_places_that_hold_no_scores_are_sentences(
    tmp_path: Path, name: str, text: str, named: str
) -> None:
    if text:
        (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=named):
        render(sources([tmp_path / name]))


def test_a_configuration_needs_a_section_reward(tmp_path: Path, run: Path) -> None:
    (tmp_path / "list.yaml").write_text("[a]")
    with pytest.raises(ConfigError, match="`reward`"):
        sources([run], config=tmp_path / "list.yaml")


def test_labels_take_as_many_parents_as_make_them_differ(tmp_path: Path) -> None:
    runs = [tmp_path / "a" / "run", tmp_path / "b" / "run" / "samples.jsonl"]
    assert labels_of(runs) == ["a/run", "b/run"]
    assert labels_of(runs[:1]) == ["run"]
    assert labels_of([runs[0], runs[0]]) == ["run (1)", "run (2)"]


def test_a_source_without_a_component_has_no_counts_for_it() -> None:
    both = {"reward": np.asarray([0.0, 1.0]), "rule": np.asarray([2.0, np.nan])}
    drawn = histograms([both, {"reward": np.asarray([3.0])}])
    assert list(drawn) == ["reward", "rule"]
    assert (drawn["reward"]["edges"][0], drawn["reward"]["edges"][-1]) == (0.0, 3.0)
    assert [sum(counts) for counts in drawn["reward"]["counts"]] == [2, 1]
    assert (sum(drawn["rule"]["counts"][0]), drawn["rule"]["counts"][1]) == (1, None)
