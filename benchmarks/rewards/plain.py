"""The way without rmrl, and how it compares: a program for each model, one after another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks.rewards.memory import peak_memory
from benchmarks.rewards.rig import ROOT, Sizes, Step, ratios, say, spread
from rmrl.cluster.devices import local_devices
from rmrl.inference.environment import engine_environment
from rmrl.rewards.session.items import ResponseRow
from rmrl.types import ScoreResult

WAYS = ("one_by_one", "batched")
DEADLINE_S = 900.0
_ERROR_CHARACTERS = 2000


def one_after_another(
    sizes: Sizes, second: Path, rows: Sequence[ResponseRow], *, singles_first: bool
) -> dict[str, dict[str, Any]]:
    """Reward -> seconds of its program and its scores. Both ways of scoring share a load; their
    order is said."""
    programs = {
        "answer_judge": ("judge", sizes.judge),
        "relevance": ("scalar", sizes.scalar),
        "nearness": ("embedder", sizes.embedder),
        "second_judge": ("judge", str(second)),
    }
    order = WAYS if singles_first else WAYS[::-1]
    return {
        name: _program(model, path, rows, order=order, threads=sizes.threads)
        for name, (model, path) in programs.items()
    }


def _program(
    model: str, path: str, rows: Sequence[ResponseRow], *, order: Sequence[str], threads: int
) -> dict[str, Any]:
    device = local_devices("auto").kind
    told = [
        {
            "question": row.prompt.messages[-1]["content"],
            "response": row.text,
            "truth": row.prompt.ground_truth,
        }
        for row in rows
    ]
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job.json"
        started = time.time()
        asked = {
            "model": model,
            "path": path,
            "device": device,
            "rows": told,
            "order": list(order),
            "started": started,
        }
        job.write_text(json.dumps(asked), encoding="utf-8")
        peak = _run(job, os.environ | engine_environment(device=device, threads=threads))
        wall_s, ended = time.time() - started, time.time()
        answer = json.loads(job.with_suffix(".answer.json").read_text(encoding="utf-8"))
    put_away_s = ended - answer.pop("finished")
    say(
        f"{model}: load {answer['load_s']:.1f} s, "
        + ", ".join(f"{way} {answer[way]['score_s']:.1f} s" for way in order)
    )
    return {**answer, "put_away_s": put_away_s, "wall_s": wall_s, "peak_bytes": peak}


def _run(job: Path, environment: Mapping[str, str]) -> int:
    """Run the program to its end; its peak memory. Raises RuntimeError with the end of what it said
    when it fails."""
    command = [sys.executable, "-m", "benchmarks.rewards.plain_program", str(job)]
    with (job.parent / "said.txt").open("w+", encoding="utf-8") as said:
        process = subprocess.Popen(
            command, cwd=ROOT, env=dict(environment), stdout=said, stderr=subprocess.STDOUT
        )
        try:
            with peak_memory(
                lambda: [psutil.Process(process.pid)] if process.poll() is None else []
            ) as peak:
                code = process.wait(DEADLINE_S)
        finally:
            process.kill()
            process.wait()
        if code:
            said.seek(0)
            raise RuntimeError(
                f"the plain program ended with {code}: {said.read()[-_ERROR_CHARACTERS:]}"
            )
    return peak.bytes


def compared(ours: Step, plain: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """One step of ours (each engine loaded and unloaded) beside the plain way on the same rows."""
    parts = {
        part: sum(program[part] for program in plain.values()) for part in ("load_s", "put_away_s")
    }
    result: dict[str, Any] = {
        "ours": ours.parts(),
        "peak_bytes": max(program["peak_bytes"] for program in plain.values()),
    }
    for way in WAYS:
        score_s = sum(program[way]["score_s"] for program in plain.values())
        result[way] = {**parts, "score_s": score_s, "wall_s": sum(parts.values()) + score_s}
    columns = dict(zip(ours.batch.scores.names, ours.batch.scores.results, strict=True))
    result["agreement"] = {
        name: {way: agreement(columns[name], program[way]["scores"]) for way in WAYS}
        for name, program in plain.items()
    }
    return result


def agreement(
    ours: Sequence[ScoreResult], theirs: Sequence[tuple[float | None, str]]
) -> dict[str, float]:
    """Rows with the same verdict (to 0.02: bfloat16) and, of judges, with the same text to the
    letter; the largest difference."""
    pairs = [(result.value, score) for result, (score, _) in zip(ours, theirs, strict=True)]
    gaps = [abs(a - b) for a, b in pairs if a is not None and b is not None]
    missing_alike = sum(a is None and b is None for a, b in pairs)
    wrote = [
        (result.raw_text, text) for result, (_, text) in zip(ours, theirs, strict=True) if text
    ]
    return {
        "rows": len(pairs),
        "same_verdict": sum(gap <= 0.02 for gap in gaps) + missing_alike,
        "largest_difference": max(gaps, default=0.0),
        "same_text": sum(a == b for a, b in wrote),
        "texts": len(wrote),
    }


def summary(comparisons: Sequence[Mapping[str, Any]], later: Mapping[str, float]) -> dict[str, Any]:
    """Ratios plain / ours. `later`: median seconds of a step of ours once every engine has been
    loaded, by mode."""
    found: dict[str, Any] = {"comparisons": list(comparisons)}
    for way in WAYS:
        theirs = [c[way] for c in comparisons]
        found[f"{way}_over_ours"] = ratios(
            [t["wall_s"] for t in theirs], [c["ours"]["wall_s"] for c in comparisons]
        )
        found[f"{way}_over_ours_scoring"] = ratios(
            [t["score_s"] for t in theirs], [c["ours"]["score_s"] for c in comparisons]
        )
        for mode, wall_s in later.items():
            found[f"{way}_over_ours_{mode}"] = spread([t["wall_s"] / wall_s for t in theirs])
    return found
