"""The results as lines on a terminal and as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.rewards.models import PARTS, UP

Results = Mapping[str, Any]
_COLOURS = {"load_s": "#4477aa", "wake_s": "#66ccee", "score_s": "#228833", "put_away_s": "#ccbb44"}
_MODES = {"unload": "unloaded\nafter use", "sleep": "asleep\nafter use", "stay": "staying"}
_MODE_COLOURS = {"unload": "#4477aa", "sleep": "#66ccee", "stay": "#ee6677"}


def table(results: Results) -> str:
    """One line per result, with the smallest and largest of the repeats."""
    rows: list[tuple[str, str]] = []
    if "sharing" in results:
        found = results["sharing"]
        rows += [
            (
                "two judges on one checkpoint / one with the union of requests",
                ratio(found["two_over_union"]),
            )
        ]
        rows += [
            (
                "  loads; same requests",
                f"{found['loads']:.0f}; {'yes' if found['same_requests'] else 'NO'}",
            )
        ]
    if "models" in results:
        rows += _models(results["models"]["by_mode"])
    if "plain" in results:
        rows += _plain(results["plain"])
    if "savings" in results:
        rows += _savings(results["savings"])
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def ratio(found: Mapping[str, Any]) -> str:
    """Median [smallest, largest]."""
    return f"{found['median']:.3g} [{found['min']:.3g}, {found['max']:.3g}]"


def _models(by_mode: Mapping[str, Mapping[int, Any]]) -> list[tuple[str, str]]:
    rows = []
    for mode, by_k in by_mode.items():
        for k in UP:
            found = by_k[k]
            parts = ", ".join(
                f"{part.removesuffix('_s').replace('_', ' ')} {found[part]['median']:.1f}"
                for part in PARTS
            )
            rows.append(
                (
                    f"{mode}, k={k}: seconds; peak / largest alone",
                    f"{parts}; {found['peak_over_largest_alone']:.2f}",
                )
            )
    return rows


def _plain(found: Results) -> list[tuple[str, str]]:
    told = {
        "one_by_one_over_ours": "one at a time, each model loaded / ours, each loaded and unloaded",
        "batched_over_ours": "batched, each model loaded / ours, each loaded and unloaded",
        "one_by_one_over_ours_scoring": "one at a time / ours, scoring alone",
        "batched_over_ours_scoring": "batched / ours, scoring alone",
        "batched_over_ours_sleep": "batched, each model loaded / ours, later steps, asleep between",
        "batched_over_ours_stay": "batched, each model loaded / ours, later steps, staying",
    }
    rows = [(f"plain way, {name}", ratio(found[key])) for key, name in told.items()]
    same = [
        one
        for each in found["comparisons"]
        for ways in each["agreement"].values()
        for one in ways.values()
    ]
    return [
        *rows,
        (
            "  verdicts equal to ours",
            f"{sum(s['same_verdict'] for s in same)} of {sum(s['rows'] for s in same)}",
        ),
    ]


def _savings(found: Results) -> list[tuple[str, str]]:
    rows = [
        (
            f"{side}: requests of {found['responses']}; time / all asked",
            f"{each['requests']['median']:g}; {ratio(each['over_all_asked'])}",
        )
        for side, each in found["sides"].items()
    ]
    cache = found["cache"]
    rows += [
        (
            "cache: engines loaded; ms per known response / asked",
            f"{cache['engines_loaded']:g}; {ratio(cache['hit_over_asked'])}",
        )
    ]
    rows += [("  ms per known response", ratio(cache["hit_ms_per_response"]))]
    return rows


def draw(results: Results, path: Path) -> None:
    """Four panels: time of a step by mode and k, with the plain way; memory; the two judges; what
    is saved."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, ((steps, memory), (sharing, saved)) = plt.subplots(
        2, 2, figsize=(11, 7.5), layout="constrained", width_ratios=[3, 2]
    )
    _draw_steps(steps, results)
    _draw_memory(memory, results["models"]["by_mode"])
    _draw_sharing(sharing, results["sharing"])
    _draw_saved(saved, results["savings"])
    figure.savefig(path, dpi=120)


def _draw_steps(axes: Any, results: Results) -> None:
    bars: list[tuple[float, str, Mapping[str, float]]] = []
    at = 0.0
    for found in results["models"]["by_mode"].values():
        bars += [(at + k, f"{k}", {part: found[k][part]["median"] for part in PARTS}) for k in UP]
        at += len(UP) + 1
    for number, (way, name) in enumerate(
        {"batched": "4\nbatched", "one_by_one": "4, one\nby one"}.items()
    ):
        each = [comparison[way] for comparison in results["plain"]["comparisons"]]
        bars.append(
            (
                at + 1 + 1.7 * number,
                name,
                {part: sum(e.get(part, 0.0) for e in each) / len(each) for part in PARTS},
            )
        )
    for part in PARTS:
        below = [sum(parts[p] for p in PARTS[: PARTS.index(part)]) for _, _, parts in bars]
        heights = [parts[part] for _, _, parts in bars]
        axes.bar(
            [x for x, _, _ in bars],
            heights,
            bottom=below,
            color=_COLOURS[part],
            label=part.removesuffix("_s").replace("_", " "),
        )
    axes.set_xticks([x for x, _, _ in bars], [name for _, name, _ in bars], fontsize=8)
    heads = [*(_MODES[mode] for mode in results["models"]["by_mode"]), "without\nrmrl"]
    for number, head in enumerate(heads):
        axes.text(2.5 + number * (len(UP) + 1) - 0.65 * (number == len(heads) - 1), 0.99, head, ha="center", va="top",
                  transform=axes.get_xaxis_transform(), fontsize=9)  # fmt: skip
    axes.margins(y=0.25)
    axes.set_xlabel("models", labelpad=0)
    axes.set_ylabel("seconds")
    axes.set_title(
        f"a step of {results['models']['responses']} responses; what sleeps or stays was loaded in"
        " an earlier step",
        fontsize=10,
    )
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(0.3, 0.62))


def _draw_memory(axes: Any, by_mode: Mapping[str, Mapping[int, Any]]) -> None:
    for mode, found in by_mode.items():
        name = _MODES[mode].replace("\n", " ")
        axes.plot(
            UP,
            [found[k]["peak_over_largest_alone"] for k in UP],
            marker="o",
            label=name,
            color=_MODE_COLOURS[mode],
        )
    axes.axhline(1.0, color="black", linewidth=1)
    axes.set_xticks(UP)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("models")
    axes.set_title("peak memory of engines / largest model alone", fontsize=10)
    axes.legend(fontsize=8)


def _draw_sharing(axes: Any, found: Results) -> None:
    values: Sequence[float] = found["two_over_union"]["values"]
    axes.plot(range(1, len(values) + 1), values, "o", color="#4477aa", label="round")
    axes.axhline(
        found["two_over_union"]["median"],
        color="#4477aa",
        linewidth=1,
        label=f"median {found['two_over_union']['median']:.3f}",
    )
    axes.axhline(1.05, color="#ee6677", linewidth=1, linestyle="--", label="aim: at most 1.05")
    axes.set_xticks(range(1, len(values) + 1))
    axes.set_ylim(min(0.8, *values) - 0.02, max(1.2, *values) + 0.02)
    axes.set_xlabel("round")
    axes.set_title(
        f"two judges on one checkpoint ({found['loads']:.0f} load) / one judge with the union of"
        " requests",
        fontsize=10,
    )
    axes.legend(fontsize=8)


def _draw_saved(axes: Any, found: Results) -> None:
    names = {
        "gate_0": "gate closes\n0 %",
        "gate_50": "gate closes\n50 %",
        "gate_90": "gate closes\n90 %",
        "duplicates_75": "75 % equal",
    }
    heights = [found["sides"][side]["over_all_asked"]["median"] for side in names] + [
        found["cache"]["hit_over_asked"]["median"]
    ]
    axes.bar([*names.values(), "cache knows\nall"], heights, color="#4477aa")
    for i, height in enumerate(heights):
        axes.text(i, height, f"{height:.2g}", ha="center", va="bottom", fontsize=8)
    axes.axhline(1.0, color="black", linewidth=1)
    axes.tick_params(axis="x", labelsize=8)
    axes.set_title("time of a step / every row asked", fontsize=10)
