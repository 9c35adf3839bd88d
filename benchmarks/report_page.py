"""How long a report of many responses takes to write and to open.

    python -m benchmarks.report_page                    20,000 responses; writes results/report_page.json
    python -m benchmarks.report_page --responses 2000 --out /tmp/small.json

The responses are made up (500 prompts, texts of 100 to 1,200 characters, a rule, a judge with what
it read and wrote, and a scalar model). Opening is measured in headless Chromium, from the start of
the navigation until the page answers clicks, then until a search has its result; without Chromium
and playwright that part is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.words import WORDS
from rmrl.report.page import render
from rmrl.report.sources import sources


def main() -> None:
    """Measure, print, and write the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--responses", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "results" / "report_page.json"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        run.mkdir()
        write_samples(run / "samples.jsonl", given.responses)
        started = time.perf_counter()
        text = render(sources([run]))
        written_s = time.perf_counter() - started
        page = Path(folder) / "report.html"
        page.write_text(text, encoding="utf-8")
        result = {
            "responses": given.responses,
            "samples_mib": round((run / "samples.jsonl").stat().st_size / 2**20, 1),
            "page_mib": round(page.stat().st_size / 2**20, 1),
            "render_s": round(written_s, 2),
            **opening(page, given.rounds),
        }
    print(json.dumps(result, indent=1))
    given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def write_samples(path: Path, count: int) -> None:
    """`count` responses of 500 prompts over the steps, as training writes them."""
    draw = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            file.write(json.dumps(sample(number, draw)) + "\n")


def sample(number: int, draw: random.Random) -> dict[str, Any]:
    """One response with three scores."""
    text = " ".join(draw.choice(WORDS) for _ in range(draw.randint(20, 220)))
    right = float(draw.random() < 0.5)
    judge = draw.random()
    scores = {
        "rule": {"score": right, "status": "ok", "detail": ""},
        "judge": {
            "score": judge,
            "status": "ok",
            "detail": "",
            "rendered": f"Rate this.\n\n{text}",
            "raw": f"Score: {judge:.2f}",
        },
        "scalar": {"score": draw.gauss(0, 1), "status": "ok", "detail": ""},
    }
    return {
        "step": 1 + number // 64,
        "prompt_id": f"train:{number % 500}",
        "data_source": "made up",
        "messages": [{"role": "user", "content": f"question {number % 500}: how much is it?"}],
        "response": text,
        "response_tokens": len(text) // 4,
        "finish_reason": "stop",
        "scores": scores,
        "weights": {"rule": 1.0, "judge": 0.5, "scalar": 0.1},
        "reward": right + 0.5 * judge,
        "kept": True,
        "advantage": 0.0,
    }


def opening(page: Path, rounds: int) -> dict[str, Any]:
    """Seconds until the page is usable and until a search is done, median and all rounds."""
    program = (
        os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    )
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return {"opening": "left out: playwright is not installed"}
    if program is None:
        return {"opening": "left out: no Chromium"}
    opened: list[float] = []
    searched: list[float] = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for _ in range(rounds):
            tab = browser.new_page(viewport={"width": 1280, "height": 900})
            tab.goto(f"file://{page}")
            tab.wait_for_selector("html[data-ready]", state="attached")
            opened.append(int(tab.evaluate("document.documentElement.dataset.ready")) / 1000)
            tab.click("#tab-samples")
            before = tab.inner_text("#count")
            started = time.perf_counter()
            tab.fill("#search", "question 123:")
            tab.wait_for_selector(f"#count:not(:text-is('{before}'))")
            searched.append(time.perf_counter() - started)
            tab.close()
        browser.close()
    return {
        "open_s": round(statistics.median(opened), 2),
        "open_s_rounds": [round(each, 2) for each in opened],
        "search_s": round(statistics.median(searched), 2),
        "search_s_rounds": [round(each, 2) for each in searched],
    }


if __name__ == "__main__":
    main()
