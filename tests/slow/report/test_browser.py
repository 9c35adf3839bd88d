"""The page in headless Chromium: a reader clicks through it, filters and searches."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmrl.report.page import render
from rmrl.report.sources import sources
from tests.inputs import write_lines
from tests.report.samples import HOSTILE, SAMPLES, sample, write_run

WIDE = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="playwright drives the browser: pip install playwright"
    )
    program = (
        os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    )
    if program is None:
        pytest.skip("no Chromium: install the package chromium, or name one in CHROMIUM")
    with sync_api.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """one.html of a run, two.html of two runs, long.html of 3,000 responses."""
    folder = tmp_path_factory.mktemp("pages")
    first = write_run(folder / "first")
    second = write_run(
        folder / "second", [sample(1, 0, "only here", rule=1.0, judge=0.4), *SAMPLES]
    )
    lines = [
        sample(1 + i // 100, i % 50, f"text {i}", rule=i / 3000, judge=0.5) for i in range(3000)
    ]
    long = write_run(folder / "long", lines)
    for name, runs in {"one": [first], "two": [first, second], "long": [long]}.items():
        (folder / f"{name}.html").write_text(render(sources(runs)), encoding="utf-8")
    return folder


@pytest.fixture
def opened(browser: Any, pages: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A tab without errors; its network is refused, and nothing may try to use it."""
    size, scheme = getattr(request, "param", (WIDE, "light"))
    tab = browser.new_page(viewport=size, color_scheme=scheme)
    tab.problems = []
    tab.on("pageerror", lambda error: tab.problems.append(str(error)))
    tab.on(
        "console",
        lambda line: tab.problems.append(line.text) if line.type in ("error", "warning") else None,
    )
    tab.on(
        "request",
        lambda each: None if each.url.startswith("file:") else tab.problems.append(each.url),
    )
    tab.show = lambda name: _show(tab, pages / name)
    yield tab
    assert tab.problems == []
    assert tab.title() in {"first", "first and second", "long"}  # no response has changed it
    tab.close()


def _show(tab: Any, path: Path) -> None:
    """Load the page afresh: a changed view alone would be drawn after `goto` has returned."""
    address, _, view = str(path).partition("#")
    tab.goto("about:blank")
    tab.goto(f"file://{address}{'#' + view if view else ''}")
    tab.wait_for_selector("html[data-ready]", state="attached")


def test_a_reader_finds_the_hostile_response_as_text(opened: Any) -> None:
    opened.show("one.html")
    opened.click("#tab-samples")
    opened.fill("#search", "taken nine")
    opened.wait_for_selector("#count:text-is('1 of 4')")
    opened.click("#samples .row")
    response = opened.locator(".detail .block:nth-of-type(2) pre", has_text=HOSTILE[:40])
    assert response.inner_text().startswith(HOSTILE[:40])
    assert opened.query_selector("img") is None


def test_a_chart_of_one_value_throughout_is_a_line_with_that_value(
    opened: Any, pages: Path, tmp_path: Path
) -> None:
    bad = sample(1, 0, "bad", rule=0.0, judge=0.5)
    good = sample(1, 1, "good", rule=1.0, judge=0.5)
    run = write_run(tmp_path / "first", [bad, good])
    metrics = [
        {"step": 1, "policy/kl": 0.0, "policy/ref_kl": 0.1},
        {"step": 2, "policy/kl": 0.0, "policy/ref_kl": 0.2},
    ]
    write_lines(run / "metrics.jsonl", metrics)
    (pages / "constant.html").write_text(render(sources([run])), encoding="utf-8")
    opened.show("constant.html")
    titles = "all => all.map(each => each.innerText)"
    charts = opened.eval_on_selector_all("figcaption span:first-child", titles)
    assert charts == ["policy/ref_kl", "reward", "rule"]
    notes = opened.inner_text(".overview")
    assert "they have one value throughout: policy/kl 0." in notes
    assert "they have one value throughout: judge 0.5." in notes


def test_the_first_response_is_open_and_the_overview_names_the_rewards(opened: Any) -> None:
    opened.show("one.html")
    assert "rule (weight 1), judge (weight 0.5)" in opened.inner_text(".about")
    opened.click("#tab-samples")
    opened.wait_for_selector(".detail :text-is('a long way to say eight')")  # the worst
    assert opened.get_attribute("#samples .row:first-child", "aria-selected") == "true"


def test_the_overview_says_where_the_time_went(opened: Any, pages: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "first")
    times = {
        "time/step_s": 20.0, "time/score_s": 12.0, "time/score/judge": 10.0,
        "engine/judge/load_s": 4.0, "engine/judge/wake_s": 0.5,
    }  # fmt: skip
    write_lines(run / "metrics.jsonl", [{"step": 1, **times}])
    (pages / "times.html").write_text(render(sources([run])), encoding="utf-8")
    opened.show("times.html")
    rows = opened.eval_on_selector_all(".times tr", "rows => rows.map(row => row.innerText)")
    assert [row.split("\t") for row in rows] == [
        ["stage (1 step)", "seconds", "of 20 s"],
        ["score", "12 s", "60 %"],
        ["reward", "seconds", "of 20 s"],
        ["judge", "10 s", "50 %"],
        ["engine", "load", "wake", "sleep", "unload"],
        ["judge", "4 s", "0.5 s", "0 s", "0 s"],
    ]


def test_the_reward_of_a_response_is_explained(opened: Any) -> None:
    opened.show("one.html#sample/1")
    cells = opened.eval_on_selector_all(".why tbody tr", "rows => rows.map(row => row.innerText)")
    assert [row.split("\t") for row in cells] == [
        ["rule", "0", "\u2013", "1", "0"],
        ["judge", "0.9", "scale: 1.8", "0.5", "0.9"],
    ]
    assert "The products add up to 0.9, the reward." in opened.inner_text(".detail")
    opened.click("summary:has-text('judge')")
    opened.wait_for_selector("details[open]:has-text('Rate: a long way to say eight')")


def test_filters_and_orders_choose_and_sort(opened: Any) -> None:
    opened.show("one.html#samples")
    wait_for_rewards(opened, ["0.9", "1.2", "1.6", "none"])
    opened.select_option("#order", "best first")
    wait_for_rewards(opened, ["1.6", "1.2", "0.9", "none"])
    opened.select_option("#status", "some verdict missing")
    wait_for_rewards(opened, ["none"])
    opened.select_option("#status", "any verdict")
    opened.fill("#low", "1")
    opened.fill("#high", "1.3")
    wait_for_rewards(opened, ["1.2"])
    opened.wait_for_selector("#count:text-is('1 of 4')")


def wait_for_rewards(tab: Any, expected: list[str]) -> None:
    """Until the list shows these: views and lists are drawn after the event that asked for them."""
    expect = pytest.importorskip("playwright.sync_api").expect
    expect(tab.locator("#samples .badge")).to_have_text(expected, timeout=30_000)


def test_the_list_holds_the_rows_in_view_alone_and_keys_move_in_it(opened: Any) -> None:
    opened.show("long.html#samples")
    opened.wait_for_selector("#count:text-is('3000 of 3000')")
    assert 0 < opened.locator("#samples .badge").count() < 40
    opened.select_option("#order", "as in the file")
    opened.focus("#samples")
    opened.keyboard.press("End")
    opened.wait_for_selector(".detail :text-is('text 2999')")
    opened.keyboard.press("ArrowUp")
    opened.wait_for_selector(".detail :text-is('text 2998')")


def test_two_runs_stand_side_by_side_and_a_prompt_has_a_history_over_both(
    opened: Any, tmp_path: Path
) -> None:
    opened.show("two.html")
    assert opened.eval_on_selector_all(".figures .source", "all => all.map(e => e.innerText)") == [
        *("first", "second")
    ]
    assert opened.locator("figure.chart canvas").count() >= 5
    opened.click("#tab-samples")
    opened.select_option("#run", "second")
    opened.wait_for_selector("#count:text-is('5 of 9')")
    opened.click("#tab-prompts")
    opened.click("#prompts .row:first-child")
    opened.wait_for_selector(".detail:has-text('mean reward of this prompt')")
    assert opened.locator(".detail .pick").count() == 5
    opened.click(".detail .pick:last-of-type")
    opened.wait_for_url("**/two.html#sample/*")
    opened.screenshot(path=str(tmp_path / "page.png"))
    assert (tmp_path / "page.png").stat().st_size > 10_000


@pytest.mark.parametrize("opened", [(PHONE, "dark")], indirect=True)
def test_on_a_phone_nothing_is_wider_than_the_screen(opened: Any) -> None:
    for view in ("overview", "samples", "prompts", "sample/0"):
        opened.show(f"two.html#{view}")
        assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
    opened.wait_for_selector(".pane", state="hidden")
    opened.click("text=back to the list")
    opened.wait_for_selector(".pane", state="visible")
    background = opened.evaluate("getComputedStyle(document.body).backgroundColor")
    assert sum(json.loads(f"[{background[4:-1]}]")) < 150  # dark


def test_a_script_that_is_not_the_page_s_own_does_not_run(opened: Any, pages: Path) -> None:
    text = (pages / "one.html").read_text(encoding="utf-8")
    foreign = text.replace("</body>", "<script>document.title = 'taken'</script></body>")
    (pages / "foreign.html").write_text(foreign, encoding="utf-8")
    opened.show("foreign.html")
    assert opened.title() == "first"
    assert any("Content Security Policy" in problem for problem in opened.problems)
    opened.problems.clear()
