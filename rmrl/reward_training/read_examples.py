"""Files -> examples, and the split into training and held-out rows by their prompts."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rmrl.config.schema import RewardDataConfig
from rmrl.data.column_names import ColumnNames
from rmrl.data.surrogates import replaced
from rmrl.errors import DataError
from rmrl.evaluation.formats.fields import Fields
from rmrl.evaluation.formats.pairs import labelled_pair
from rmrl.evaluation.read_items import raw_rows
from rmrl.reward_training.example import Example
from rmrl.reward_training.forms import FORMS, form_of
from rmrl.reward_training.forms.form import Form


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Examples to train on, and those held out, which share no prompt."""

    train: list[Example]
    held_out: list[Example]
    rows: int
    """Rows of the training files."""
    excluded: int
    """Training rows whose prompt stands in `data.exclude_files`."""
    overlapping: int
    """Training rows that were left out because their prompt is held out (`data.val_files`)."""
    without_critique: int = 0
    """Rows with a response that the critic wrote nothing about."""

    @property
    def digest(self) -> str:
        """Equal for equal rows, whatever their files' names."""
        digest = hashlib.blake2b(digest_size=16)
        for each in (*self.train, *self.held_out):
            responses = f"{each.responses}{each.before or ''}"
            row = f"{each.key}\0{responses}\0{each.labels}\0{each.margin}\0{each.question}"
            digest.update(row.encode(errors="replace"))
        return digest.hexdigest()


def read_examples(
    files: object, key: str, data: RewardDataConfig, *, among: Collection[str], most: int = -1
) -> list[Example]:
    """Return the rows in files that are named at `key`; at most `most` (-1: all). `among`: forms
    that the objective learns from.

    Raises DataError naming file, row and column, ConfigError for what names no files.
    """
    names = ColumnNames({name: str(path) for name, path in data.columns.items()})
    form: Form | None = None
    name = data.form
    examples: list[Example] = []
    for number, (place, values) in enumerate(raw_rows(files, key, names, max_rows=most)):
        if form is None:
            name = name or form_of(values, names, place=place, among=among)
            form = FORMS[name]()
            if name not in among:
                raise DataError(
                    f"{place}: this is a row of the form {name}, and the objective learns from"
                    f" {', '.join(among)}; choose another objective=..., or name the columns with"
                    " data.columns"
                )
        row = Fields(place=place, number=number, values=replaced(values), names=names)
        names.see(values)
        examples.append(_whole(form.example(row), data))
    names.refuse_unseen(data.columns)
    return examples


def _whole(example: Example, data: RewardDataConfig) -> Example:
    """Return the example, with all rows' question where it has answers and no question. Raises
    DataError where the prompt or the question is missing."""
    if not example.has_prompt:
        raise DataError(
            f"{example.place}: saw no prompt; need text in the column `prompt` (or name yours:"
            " data.columns.prompt=...), or turns or lines before the response that all responses"
            " share; mend or drop the row"
        )
    if example.question or not example.answers:
        return example
    if not data.question:
        raise DataError(
            f"{example.place}: the row has a label and no question: give a column `question`, or"
            " the question of all rows, e.g. data.question='The answer is correct.'"
        )
    return replace(example, question=data.question)


def prompts_in(files: object, data: RewardDataConfig) -> set[str]:
    """Return an evaluation set's prompts, in any layout that has a prompt column, or pairs."""
    names = ColumnNames({name: str(path) for name, path in data.columns.items()})
    prompts: set[str] = set()
    for number, (place, values) in enumerate(raw_rows(files, "data.exclude_files", names)):
        row = Fields(place=place, number=number, values=values, names=names)
        column = row.prompt_column()
        if column is not None:
            prompt = row.prompt(column)
        elif row.get("chosen", row.get("conversation_a")) is not None:
            prompt = labelled_pair(row).prompt
        else:
            saw = ", ".join(map(str, values))
            raise DataError(
                f"{place}: saw the columns {saw}; need the prompt of the evaluation set: name its"
                " column with data.columns.prompt=..."
            )
        prompts.add(Example(place=place, prompt=prompt, responses=()).asked)
    return prompts


def split(data: RewardDataConfig, *, among: Collection[str], seed: int) -> Split:
    """Read all files, and hold rows out: those in `val_files`, else the share `val_share`, whole
    prompts at a time, drawn from `seed`."""
    everything = read_examples(
        data.train_files, "data.train_files", data, among=among, most=data.train_max_samples
    )
    barred: set[str] = set()
    if data.exclude_files is not None:
        barred = prompts_in(data.exclude_files, data)
    allowed = [example for example in everything if example.asked not in barred]
    if data.val_files is not None:
        held_out = read_examples(
            data.val_files, "data.val_files", data, among=among, most=data.val_max_samples
        )
        reserved = {example.asked for example in held_out}
    else:
        reserved = _drawn(sorted({each.asked for each in allowed}), data.val_share, seed)
        held_out = [example for example in allowed if example.asked in reserved]
        if data.val_max_samples >= 0:
            held_out = held_out[: data.val_max_samples]
    train = [example for example in allowed if example.asked not in reserved]
    overlapping = 0
    if data.val_files is not None:
        overlapping = len(allowed) - len(train)
    return Split(
        train=train,
        held_out=held_out,
        rows=len(everything),
        excluded=len(everything) - len(allowed),
        overlapping=overlapping,
    )


def _drawn(prompts: Sequence[str], share: float, seed: int) -> set[str]:
    """Return a share of the prompts, the same on every machine: those with the smallest hashes."""

    def place(prompt: str) -> Any:
        return hashlib.blake2b(f"{seed}\n{prompt}".encode(errors="replace")).digest()

    count = round(share * len(prompts))
    if share > 0:
        count = max(count, min(1, len(prompts) - 1))
    return set(sorted(prompts, key=place)[:count])
