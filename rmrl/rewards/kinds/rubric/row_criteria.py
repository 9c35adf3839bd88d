"""Entries of a rubric reward, and the criteria that judge each row."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rmrl.config.schema.fields import choice, share
from rmrl.errors import ConfigError
from rmrl.rewards.kinds.judge.asked import VERDICTS, verdict_problems
from rmrl.rewards.kinds.judge.asking import conversation_text
from rmrl.rewards.kinds.judge.label_mass import mass_problems
from rmrl.rewards.kinds.judge.votes import VOTES
from rmrl.rewards.kinds.rubric.columns import column_problems
from rmrl.rewards.kinds.rubric.combine import COMBINERS, weights_problem
from rmrl.rewards.kinds.rubric.criteria import CriteriaError, Criterion, NoCriteriaError
from rmrl.rewards.kinds.rubric.dropout import kept_criteria
from rmrl.rewards.kinds.rubric.find_criteria import configured_criteria, read_criteria
from rmrl.rewards.kinds.rubric.forms import FORMS
from rmrl.rewards.kinds.shared.row_fields import field_of, row_fields_problems
from rmrl.types import ScoreItem

HOLISTIC = "holistic"
_READ_BY: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("question", "scale", "votes", "verdict"), (HOLISTIC,)),
    **dict.fromkeys(("hard", "pass_at", "columns"), tuple(COMBINERS)),
    "clip": ("weighted_mean",),
}
"""Entry -> the values of `combine` that read it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Entries of a reward that judges by criteria."""

    criteria: Any = None
    """Criteria of every row: a list, or the path of a .toml, .json or .yaml file."""
    criteria_from: str = ""
    """Field of the row with its own criteria, ground_truth or extra_info.<key>: a list, or its
    JSON. They follow `criteria`, if there are any. Without those every row must have some, and an
    empty list is none."""
    form: str = ""
    """Form of the criteria: own, texts, healthbench, open_instruct, verifiers, harbor or
    package.module:name. "": found by the fields of the first one."""
    combine: str = choice("weighted_mean", among=(*COMBINERS, HOLISTIC))
    """weighted_mean, signed_mean or all_pass over the criteria, or holistic: one call in which the
    judge writes one number."""
    clip: bool = True
    """weighted_mean is at least 0."""
    pass_at: float = share(0.5)
    """Value from which a criterion counts as met, for all_pass and must_have."""
    hard: bool = False
    """A criterion's value is that of the likeliest answer. False: the expected value."""
    min_label_mass: float = share(0.0)
    """No verdict where the answers to a criterion together are less likely than this as the judge's
    next token. With holistic: for verdict=ask and expect."""
    columns: Sequence[str] = ()
    """Names and tags of rows' own criteria that have a column each. Others have one by their
    place."""
    dropout: float = 0.0
    """Share of the criteria that is left out, another one in every step of training."""
    dropout_everywhere: bool = False
    """Criteria are left out in validation and offline scoring too, the same ones each time."""
    question: str = ""
    """holistic: the question. "": how well the response meets the criteria."""
    scale: Sequence[float] = (0.0, 10.0)
    """holistic: lowest and highest number. The score is the number's place between them."""
    votes: str = choice("mean", among=VOTES)
    """holistic: combination of sampling.n numbers: mean, median or majority."""
    verdict: str = choice("parse", among=VERDICTS)
    """holistic: parse reads the number from the judge's text, ask and expect ask for it behind the
    text, as in kind generative."""
    fence: bool = True
    """Responses stand between markers that they cannot contain."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The criteria that judge one row."""

    criteria: tuple[Criterion, ...]
    numbers: tuple[int, ...]
    """Place of each among all criteria of the row, counted from 1."""
    total: int
    """Number of all the row's criteria, those that dropout left out included."""


class RowCriteria:
    """Finds a row's criteria."""

    def __init__(self, options: Options, where: str) -> None:
        """Raises ConfigError for configured criteria that cannot be read."""
        self._options = options
        try:
            self.configured = configured_criteria(
                options.criteria, where=f"{where}.criteria", form=options.form
            )
        except CriteriaError as error:
            raise ConfigError(str(error)) from error

    def of(self, item: ScoreItem) -> Judged:
        """A row's criteria. Raises CriteriaError where it has none that can be read, or none
        that give a score."""
        options = self._options
        criteria = self.configured
        if options.criteria_from:
            value = field_of(item, options.criteria_from)
            if value is not None:
                try:
                    criteria += read_criteria(value, where=options.criteria_from, form=options.form)
                except NoCriteriaError:
                    if not criteria:
                        raise
        if not criteria:
            raise CriteriaError(
                f"the row has no {options.criteria_from}, which is to hold its criteria"
            )
        problem = weights_problem(criteria, options.combine)
        if problem:
            raise CriteriaError(f"{options.criteria_from or 'criteria'}: {problem}")
        positions = list(range(len(criteria)))
        if options.dropout and (item.step is not None or options.dropout_everywhere):
            # Of the text: the id of a prompt is another one in each row of a file.
            prompt = conversation_text(item.rm_prompt).encode(errors="surrogatepass")
            seed = f"{hashlib.sha256(prompt).hexdigest()}\n{item.step}"
            positions = kept_criteria(criteria, options.dropout, seed=seed, combine=options.combine)
        judging = tuple(criteria[i] for i in positions)
        return Judged(judging, tuple(i + 1 for i in positions), len(criteria))

    def problem(self, item: ScoreItem) -> str:
        """Why a row has no criteria, "" where it has."""
        try:
            self.of(item)
        except CriteriaError as error:
            return str(error)
        return ""


def option_problems(options: Options, where: str) -> list[str]:
    """Problems of the entries, one sentence each."""
    problems: list[str] = []
    if options.criteria is None and not options.criteria_from:
        problems.append(
            f"{where}.criteria: nothing to judge by: give a list of criteria, e.g."
            f" {where}.criteria=['The answer is correct.'], or the field of the rows that has them,"
            f" e.g. {where}.criteria_from=extra_info.rubrics"
        )
    if options.criteria_from:
        problems += row_fields_problems({"criteria_from": options.criteria_from}, where)
    if options.form:
        problems += FORMS.unknown(options.form, f"{where}.form={options.form}")
    reads = options.combine != HOLISTIC or options.verdict != "parse"
    problems += mass_problems(options.min_label_mass, where, read=reads)
    if not 0 <= options.dropout < 1:
        problems.append(f"{where}.dropout={options.dropout:g}: give a share from 0 to below 1")
    scale = options.scale
    if len(scale) != 2 or scale[0] >= scale[1]:
        problems.append(f"{where}.scale={scale!r}: give the lowest and the highest number")
    else:
        problems += verdict_problems(options.verdict, scale, where)
    if problems:
        return problems
    try:
        criteria = RowCriteria(options, where).configured
    except ConfigError as error:
        return error.problems
    if criteria and not options.criteria_from:
        problem = weights_problem(criteria, options.combine)
        if problem:
            problems.append(f"{where}.criteria: {problem}")
    for name, ways in _READ_BY.items():
        value = getattr(options, name)
        if options.combine not in ways and value != getattr(Options(), name):
            problems.append(
                f"{where}.{name}={value!r}: combine={options.combine} does not read it, only"
                f" combine={', '.join(ways)}; leave it out"
            )
    problems += column_problems([each.name for each in criteria if each.name], f"{where}.criteria")
    problems += column_problems(dict.fromkeys(options.columns), f"{where}.columns")
    return problems
