"""The files that a run leaves for people and for the other commands."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from rmrl.data.surrogates import escaped
from rmrl.evaluation.eval_tables import Rows, aligned, percent
from rmrl.evaluation.page import Page, write_page
from rmrl.evaluation.report import finite
from rmrl.files import write_whole
from rmrl.reward_training.check_reward_training import CheckedRewardTraining
from rmrl.reward_training.data_report import data_tables
from rmrl.reward_training.held_out import TRAINED, UNTRAINED
from rmrl.reward_training.training import ADAPTER, BEST, Outputs, State, run_figures

REPORT = "report.json"
REWARD = "reward.yaml"
_OTHER_WAYS = "  # or min, or lower_bound (with k: 1.0), which subtracts the seeds' disagreement"


def run_report(
    checked: CheckedRewardTraining, state: State, judges_outputs: Mapping[str, Outputs]
) -> dict[str, Any]:
    """Return the report's numbers, but for the comparison between engines. `judges_outputs`: what
    stands in the table before the untrained head and the baselines."""
    examples = [checked.split.held_out[item.number] for item in checked.held_out.items]
    judges: dict[str, Any] = {}
    if state.best:
        judges = checked.objective.report(
            checked.split.train,
            examples,
            {**judges_outputs, UNTRAINED: state.untrained},
            seed=checked.config.trainer.seed,
        )
    return {
        "objective": checked.config.objective,
        "model": checked.config.model.path,
        "data": checked.data_numbers,
        "run": run_figures(state),
        "best": state.best_figures,
        "last": state.last_figures,
        "judges": judges,
    }


def write_report(checked: CheckedRewardTraining, report: dict[str, Any]) -> None:
    """Write the report as JSON, markdown and HTML."""
    path = checked.out / REPORT
    write_whole(path, escaped(json.dumps(finite(report), ensure_ascii=False, indent=1)) + "\n")
    title = f"{report['objective']} on {report['model']}"
    write_page(Page(title=title, tables=report_tables(checked, report)), path)


def report_tables(checked: CheckedRewardTraining, report: dict[str, Any]) -> list[Rows]:
    """Return the report's tables."""
    tables: list[Rows] = []
    if report["judges"]:
        tables.append(checked.objective.table(report["judges"]))
    run = report["run"]
    facts = [["run", ""], ["steps", str(run["steps"])], ["best at step", str(run["best_step"])]]
    if run["skipped_updates"]:
        facts.append(["steps without an update", str(run["skipped_updates"])])
    facts.append(["tokens", str(run["tokens"])])
    facts.append(["seconds of updates", f"{run['seconds']:.0f}"])
    if "accuracy" in report["last"]:
        facts.append(["accuracy at the last step", percent(report["last"]["accuracy"])])
    tables.append(facts)
    if report.get("agreement") is not None:
        facts.append(["pairs that two seeds order alike", percent(report["agreement"])])
    if "gate" in report:
        gate = report["gate"]
        rows = [[f"{gate['texts']} texts", "largest difference from transformers", "allowed"]]
        for name, difference in gate["largest_difference_from_transformers"].items():
            rows.append([name, f"{difference:.1e}", f"{gate['tolerance']:.1e}"])
        rows += [[name, reason, ""] for name, reason in gate["skipped"].items()]
        tables.append(rows)
    return [*tables, *data_tables(report["data"])]


def console(checked: CheckedRewardTraining, report: dict[str, Any]) -> str:
    """Return the report's tables as text."""
    return "\n\n".join(map(aligned, report_tables(checked, report)))


def best_folder(checked: CheckedRewardTraining) -> str:
    """Return the trained model's folder."""
    return str((checked.out / BEST).resolve())


def reward_spec(checked: CheckedRewardTraining) -> dict[str, Any]:
    """Return the entries for a reward that scores with the trained model."""
    examples = [*checked.split.train, *checked.split.held_out]
    spec = checked.objective.reading.reward_spec(best_folder(checked), examples)
    return {**spec, **checked.prompt_entries}


def gate_spec(checked: CheckedRewardTraining) -> dict[str, Any]:
    """Return the entries for a reward that the gate scores rows with."""
    spec = checked.objective.reading.gate_spec(best_folder(checked))
    return {**spec, **checked.prompt_entries}


def adapter_spec(checked: CheckedRewardTraining, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a reward's entries with the adapter beside its base, in the model's place."""
    adapter = checked.out / BEST / ADAPTER
    base = str(checked.base.resolve())
    return {**spec, "path": base, "adapter": str(adapter.resolve())}


def reward_name(checked: CheckedRewardTraining) -> str:
    """Return the trained reward's name: the folder's, where it is a word."""
    name = checked.out.name.replace("-", "_")
    return name if name.isidentifier() else TRAINED


def reward_section(checked: CheckedRewardTraining) -> dict[str, Any]:
    """Return the section `reward` that scores with the trained model."""
    name = reward_name(checked)
    return {"models": [name], "specs": {name: reward_spec(checked)}}


def write_ensemble_yaml(checked: CheckedRewardTraining, section: dict[str, Any]) -> None:
    """Write a section whose reward is an ensemble. A comment names the other ways to combine."""
    text = yaml.safe_dump({"reward": section}, sort_keys=False)
    text = text.replace("      how: mean\n", f"      how: mean{_OTHER_WAYS}\n")
    write_whole(checked.out / REWARD, text)


def write_reward_yaml(checked: CheckedRewardTraining, *, calibrated: bool) -> None:
    """Write the section. Where there is a calibration map, a comment says how to use it."""
    text = yaml.safe_dump({"reward": reward_section(checked)}, sort_keys=False)
    if calibrated:
        file = (checked.out / "calibration" / f"{reward_name(checked)}.json").resolve()
        text += (
            "      # P(good) in the place of the score:\n"
            f"      # transform: {{kind: calibrated, file: {file}}}\n"
        )
    write_whole(checked.out / REWARD, text)
