"""Files beside the output, made from its scores: every prompt's best response, pairs for DPO,
examples for SFT.

    select=best    <name>.best.jsonl   the best response's row: its columns and its scores
    export=dpo     <name>.dpo.jsonl    {"prompt", "chosen", "rejected", "score_chosen",
                                       "score_rejected"}: a prompt's best and worst response
    export=sft     <name>.sft.jsonl    {"prompt", "completion"}: every response with a reward, with
                                       select=best the best ones

The prompts are `data.group_key`'s. dpo and sft have the columns that TRL reads
(https://huggingface.co/docs/trl/dataset_formats): texts where the prompt is a text, message lists
where it is one.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from rmrl.data.column_names import column_names
from rmrl.data.csv_cells import values_of
from rmrl.data.responses import AnsweredRow
from rmrl.data.row_index import rows_to_score
from rmrl.files import is_csv
from rmrl.offline.assemble import added_columns, names_of_columns
from rmrl.offline.job import Job
from rmrl.offline.manifest import export_file
from rmrl.offline.selections import Picks, Rewards, pick
from rmrl.types import Prompt

_log = logging.getLogger(__name__)

Record = dict[str, Any]


def export(job: Job) -> None:
    """Write the files for `select` and `export`. Raises DataError where they cannot be written."""
    config = job.checked.config
    if config.select is None and config.export is None:
        return
    rewards = job.rewards()
    picks: Picks | None = None
    if job.survey.groups is not None:
        groups = job.survey.groups
        picks = pick(rewards, groups.of_rows(), groups=groups.groups)
        _log.info(
            f"{groups.groups} prompts; in {picks.tied} several responses share the highest reward,"
            f" of which the first counts; {picks.missing} responses have no reward and are never"
            " picked"
        )
    exports = _Exports(job, rewards, picks)
    if config.select == "best":
        file = export_file(job.out, "best")
        count = job.write_export(file, exports.best())
        _log.info(f"wrote {file}: the best response to {count} prompts")
    if config.export == "dpo":
        file = export_file(job.out, "dpo")
        count = job.write_export(file, exports.pairs())
        reasons = [f"{number} {reason}" for reason, number in exports.left_out.items()]
        left_out = ", ".join(reasons) or "none"
        _log.info(f"wrote {file}: {count} pairs; prompts left out: {left_out}")
    if config.export == "sft":
        file = export_file(job.out, "sft")
        count = job.write_export(file, exports.examples())
        _log.info(f"wrote {file}: {count} examples")


@dataclass(slots=True)
class _Open:
    """A pair's two sides whose rows are being read."""

    chosen: AnsweredRow | None = None
    rejected: AnsweredRow | None = None


class _Exports:
    """The files' records."""

    def __init__(self, job: Job, rewards: Rewards, picks: Picks | None) -> None:
        self._job = job
        self._rewards = rewards
        self._picks = picks
        self.left_out: Counter[str] = Counter()
        """Reason -> number of prompts without a pair."""

    def best(self) -> Iterator[Record]:
        """Yield the best responses' rows, in the files' order."""
        is_best_F = self._best_places()
        rows = self._rows()
        for added in added_columns(self._job):
            for i, row in enumerate(islice(rows, len(added["reward"]))):
                first = int(self._rewards.firsts_N[row.number])
                for index in range(len(row.texts)):
                    if is_best_F[first + index]:
                        scores = {name: values[i] for name, values in added.items()}
                        yield self._single(row, index, scores)

    def examples(self) -> Iterator[Record]:
        """Yield one example per response with a reward, in the files' order."""
        wanted_F = ~np.isnan(self._rewards.rewards_F)
        if self._job.checked.config.select == "best":
            wanted_F = self._best_places()
        for row in self._rows():
            first = int(self._rewards.firsts_N[row.number])
            for index, text in enumerate(row.texts):
                if wanted_F[first + index]:
                    prompt = row.prompts[index]
                    yield {"prompt": _prompt(prompt), "completion": _answer(prompt, text)}

    def pairs(self) -> Iterator[Record]:
        """Yield a pair per prompt, as far as it has one."""
        job = self._job
        groups = job.survey.groups
        assert self._picks is not None
        assert groups is not None
        group_of_row_N = groups.of_rows()
        best_G = self._picks.best_G
        worst_G = self._picks.worst_G
        wanted_G = self._wanted_pairs(self._picks)
        rows_F = self._rewards.rows_F
        pending: dict[int, _Open] = {}
        # The rows of a group follow each other here, so few pairs are open at a time.
        for row in rows_to_score(job.checked.config.data, job.survey, by_group=True):
            group = int(group_of_row_N[row.number])
            if not wanted_G[group]:
                continue
            pair = pending.setdefault(group, _Open())
            if rows_F[best_G[group]] == row.number:
                pair.chosen = row
            if rows_F[worst_G[group]] == row.number:
                pair.rejected = row
            if pair.chosen is not None and pair.rejected is not None:
                record = self._pair(pair.chosen, pair.rejected, group)
                del pending[group]
                # Later rows of the group have nothing to add.
                wanted_G[group] = False
                if record is not None:
                    yield record

    def _wanted_pairs(self, picks: Picks) -> np.ndarray:
        """Return which groups have a pair by their rewards; bool."""
        margin = self._job.checked.config.export_margin
        rewards_F = self._rewards.rewards_F
        with np.errstate(invalid="ignore"):  # two infinite rewards have no difference
            difference_G = rewards_F[picks.best_G] - rewards_F[picks.worst_G]
        several_G = picks.scored_G > 1
        differ_G = several_G & (difference_G > 0)
        wanted_G = differ_G & (difference_G >= margin)
        self._leave_out("with fewer than two responses with a reward", ~several_G)
        self._leave_out("with equal rewards", several_G & ~differ_G)
        self._leave_out(f"below export_margin={margin:g}", differ_G & ~wanted_G)
        return wanted_G

    def _leave_out(self, reason: str, groups_G: np.ndarray) -> None:
        if groups_G.any():
            self.left_out[reason] = int(groups_G.sum())

    def _pair(self, chosen: AnsweredRow, rejected: AnsweredRow, group: int) -> Record | None:
        assert self._picks is not None
        best = int(self._picks.best_G[group])
        worst = int(self._picks.worst_G[group])
        chosen_index = best - int(self._rewards.firsts_N[chosen.number])
        rejected_index = worst - int(self._rewards.firsts_N[rejected.number])
        chosen_text = chosen.texts[chosen_index]
        rejected_text = rejected.texts[rejected_index]
        prompt = chosen.prompts[chosen_index]
        if prompt.messages != rejected.prompts[rejected_index].messages:
            self.left_out["whose two responses answer different prompts"] += 1
            return None
        if chosen_text == rejected_text:
            self.left_out["whose two responses are the same text"] += 1
            return None
        return {
            "prompt": _prompt(prompt),
            "chosen": _answer(prompt, chosen_text),
            "rejected": _answer(prompt, rejected_text),
            "score_chosen": float(self._rewards.rewards_F[best]),
            "score_rejected": float(self._rewards.rewards_F[worst]),
        }

    def _rows(self) -> Iterator[AnsweredRow]:
        return rows_to_score(self._job.checked.config.data, self._job.survey, by_group=False)

    def _best_places(self) -> np.ndarray:
        """Bool per response."""
        assert self._picks is not None
        is_best_F = np.zeros(len(self._rewards.rewards_F), dtype=bool)
        is_best_F[self._picks.best_G[self._picks.best_G >= 0]] = True
        return is_best_F

    def _single(self, row: AnsweredRow, index: int, scores: Mapping[str, Any]) -> Record:
        """Return the columns for one response in a row."""
        settings = self._job.checked.config.data
        names = column_names(settings)
        key = names.at("response")
        columns = dict(row.fields)
        if is_csv(row.file):
            columns = values_of(row.fields, names)
        if row.several:
            answers = columns.pop("responses", None)
            value = names.value(columns, "response")
            if isinstance(value, list):
                answers = value
            columns[key] = answers[index]
            for name in ("response_tokens", "finish_reason"):
                values = names.value(columns, name)
                if isinstance(values, list):
                    columns[names.at(name)] = values[index]
            scores = {name: values[index] for name, values in scores.items()}
        return columns | dict(scores) | names_of_columns(self._job)


def _prompt(prompt: Prompt) -> Any:
    if prompt.plain_text:
        return prompt.messages[0]["content"]
    return list(prompt.messages)


def _answer(prompt: Prompt, text: str) -> Any:
    if prompt.plain_text:
        return text
    return [{"role": "assistant", "content": text}]
