"""Turn judges' recorded scores, verdicts or raw outputs into judgements, without any model.

    id                         the item's id
    judge                      the judge's name; the file's name where there is none
    scores                     a number per response, or one number
    verdict, verdict_swapped   A, B or tie (1, 2, 0; "A>B"); the second with both responses swapped
    text, text_swapped         what the judge wrote, read as `eval.choices`, `eval.scale` or
                               `eval.parser` says; or texts in a list, one per response
    first_wrong                the step that the judge calls the first wrong one. -1: none

A value that is no verdict is a missing verdict.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rmrl.api import Parser, read_choice, read_number
from rmrl.config.schema import BenchmarkConfig
from rmrl.data.column_names import ABSENT, ColumnNames, at_path, value_at
from rmrl.errors import DataError
from rmrl.evaluation.formats import Format
from rmrl.evaluation.items import Item
from rmrl.evaluation.judgements import Judgement, Winners
from rmrl.evaluation.read_items import raw_rows

_log = logging.getLogger(__name__)

NAMES = (
    "id", "judge", "scores", "verdict", "verdict_swapped", "text", "text_swapped", "first_wrong",
)  # fmt: skip
_FIRST = ("a", "1", "a>b", "a>>b", "first", "model_a", "response_a", "output_1", "response_1")
_SECOND = ("b", "2", "b>a", "b>>a", "second", "model_b", "response_b", "output_2", "response_2")
_TIE = ("tie", "0", "c", "a=b", "both", "tie (bothbad)")
_BOTH = frozenset({0, 1})
WINNERS: Mapping[str, frozenset[int]] = {
    **dict.fromkeys(_FIRST, frozenset({0})),
    **dict.fromkeys(_SECOND, frozenset({1})),
    **dict.fromkeys(_TIE, _BOTH),
}
"""Spellings of a verdict on a pair, in small letters."""


@dataclass(frozen=True, slots=True)
class TextReader:
    """Reads a judge's text as `eval.choices`, `eval.scale` or `eval.parser` says."""

    settings: BenchmarkConfig

    def winners(self, text: str) -> Winners:
        """Return a pair's winner, numbered in the order in the judge's prompt."""
        settings = self.settings
        verdict: str | None
        if settings.parser:
            verdict = Parser(settings.parser, "verdict").read(text).verdict
        else:
            verdict = read_choice(text, settings.choices).verdict
        if verdict is None:
            return None
        numbers = dict(zip(settings.choices, (frozenset({0}), frozenset({1}), _BOTH), strict=False))
        return numbers.get(verdict, winners_of(verdict))

    def score(self, text: str) -> float | None:
        """Return the number that a text gives."""
        settings = self.settings
        if settings.parser:
            return number_of(Parser(settings.parser, "verdict").read(text).verdict)
        if not settings.scale:
            return None
        low, high = settings.scale
        return read_number(text, low, high).verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRow:
    """One recorded row on an item."""

    values: Mapping[str, Any]
    """The values by the names in `NAMES`."""
    item: Item
    reader: TextReader
    names_original: bool
    """Whether a verdict on the swapped pair names the responses as in the original order."""

    def judgement(self) -> Judgement:
        """Return the step that is called wrong, for an item with step labels. Else return the
        scores or, without scores, the verdicts. Raises DataError for too many or too few scores."""
        if self.item.first_wrong is not None:
            step = number_of(self.values.get("first_wrong"))
            if step is None or step != int(step):
                return Judgement()
            return Judgement(first_wrong=int(step))
        scores = self.scores()
        if scores:
            return Judgement(scores=scores)
        return Judgement(verdicts=self.verdicts())

    def scores(self) -> tuple[float | None, ...]:
        """Return a score per response. () where the row has neither scores nor texts with
        scores."""
        recorded = self.values.get("scores")
        text = self.values.get("text")
        count = len(self.item.responses)
        if isinstance(recorded, list | tuple):
            scores = tuple(map(number_of, recorded))
        elif recorded is not None:
            scores = (number_of(recorded),)
        elif isinstance(text, list | tuple):
            scores = tuple(self.reader.score(str(each)) for each in text)
        elif isinstance(text, str) and count == 1:
            scores = (self.reader.score(text),)
        else:
            return ()
        if len(scores) != count:
            raise DataError(
                f"eval.recorded: item {self.item.id} has {count} responses and {len(scores)}"
                " recorded scores; need one each; mend the file"
            )
        return scores

    def verdicts(self) -> tuple[Winners, ...]:
        """Return the verdicts in one order or both, numbered as in the item."""
        text = self.values.get("text")
        if isinstance(text, str):
            verdicts = [self.reader.winners(text)]
        else:
            verdicts = [winners_of(self.values.get("verdict"))]
        swapped = self.values.get("text_swapped")
        if isinstance(swapped, str):
            verdicts.append(_turned(self.reader.winners(swapped)))
        elif "verdict_swapped" in self.values:
            winners = winners_of(self.values["verdict_swapped"])
            if not self.names_original:
                winners = _turned(winners)
            verdicts.append(winners)
        return tuple(verdicts)


def read_recorded(
    settings: BenchmarkConfig, form: Format, items: Sequence[Item]
) -> dict[str, list[Judgement]]:
    """Return judge -> one judgement per item. An item without a recorded row has no verdict.

    Raises DataError where no id belongs to an item, no row has a named column, or a judge has two
    judgements on an item.
    """
    paths: dict[str, Any] = {**dict(zip(NAMES, NAMES, strict=True)), "swapped_names": "shown"}
    paths |= {**form.recorded, **settings.recorded_columns}
    if settings.swapped_names is not None:
        paths["swapped_names"] = settings.swapped_names
    number_of_id = {item.id: number for number, item in enumerate(items)}
    reader = TextReader(settings)
    judges: dict[str, dict[int, Judgement]] = {}
    foreign = 0
    names = ColumnNames(_given_columns(settings))
    for place, values in raw_rows(settings.recorded, "eval.recorded"):
        names.see(values)
        number = number_of_id.get(str(value_at(values, paths["id"])))
        if number is None:
            foreign += 1
            continue
        name = judge_name(values, paths["judge"]) or place.partition(" ")[0]
        judgements = judges.setdefault(name, {})
        if number in judgements:
            raise DataError(
                f"{place}: saw a second judgement of '{name}' on item {items[number].id}; need one;"
                " name the column that tells judges apart: eval.recorded_columns.judge=..."
            )
        row = RecordedRow(
            values=by_name(values, paths),
            item=items[number],
            reader=reader,
            names_original=paths["swapped_names"] == "original",
        )
        judgements[number] = row.judgement()
    names.refuse_unseen(names.paths, "eval.recorded_columns")
    if not judges:
        raise DataError(
            f"eval.recorded: none of {foreign} rows has the id of an item (such as"
            f" {items[0].id}); name the column: eval.recorded_columns.id=..."
        )
    if foreign:
        _log.warning(f"{foreign} recorded rows belong to no item and were left out")
    count = len(items)
    complete: dict[str, list[Judgement]] = {}
    for name, judgements in judges.items():
        if len(judgements) < count:
            _log.warning(
                f"'{name}' has recorded judgements on {len(judgements)} of {count} items; the"
                " others count as missing verdicts"
            )
        complete[name] = [judgements.get(number, Judgement()) for number in range(count)]
    return complete


def _given_columns(settings: BenchmarkConfig) -> dict[str, str]:
    """Return name -> column from `eval.recorded_columns`, with judge.0, judge.1 ... for several
    columns."""
    columns: dict[str, str] = {}
    for name, column in settings.recorded_columns.items():
        if isinstance(column, list | tuple):
            for number, each in enumerate(column):
                columns[f"{name}.{number}"] = str(each)
        else:
            columns[name] = str(column)
    return columns


def by_name(values: Mapping[str, Any], paths: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recorded row's values by the names in `NAMES`, without the values that it lacks."""
    present: dict[str, Any] = {}
    for name in NAMES:
        if name == "judge":
            continue
        value = at_path(values, str(paths[name]))
        if value is not ABSENT:
            present[name] = value
    return present


def judge_name(values: Mapping[str, Any], path: Any) -> str:
    """Return the judge's name: the values at one path or several, joined by blanks. "" without
    any."""
    columns = path
    if not isinstance(path, list | tuple):
        columns = [path]
    parts: list[str] = []
    for column in columns:
        part = value_at(values, str(column))
        if part is not None:
            parts.append(str(part))
    return " ".join(parts)


def winners_of(value: Any) -> Winners:
    """Return the winners that a recorded verdict on a pair names. None where the value is no
    verdict."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    text = str(value)
    if isinstance(value, float):
        text = f"{value:g}"
    return WINNERS.get(text.strip().lower())


def number_of(value: Any) -> float | None:
    """Return a recorded number, also from text. None where the value is no finite number."""
    if isinstance(value, bool):
        return float(value)
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    if not math.isfinite(number):
        return None
    return number


def _turned(winners: Winners) -> Winners:
    if winners is None:
        return None
    return frozenset(1 - number for number in winners)
