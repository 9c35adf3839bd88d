"""Rules that take lists, one entry per response of a prompt's group, as other trainers call them.

    reward(prompts, completions, completion_ids, **columns) -> list of numbers and None      TRL,
      and ms-swift's classes
    compute_score(data_sources, solution_strs, ground_truths, extra_infos) -> list            verl's
      batch manager
    reward_func(queries, prompts, labels) -> tensor, or {"rewards": tensor, "scores": ...,
      "extra_logs": {...}}     OpenRLHF

Rule workers import this module: it needs the standard library only.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

COLUMNS = (
    "ground_truth",
    "answer",
    "solution",
    "data_source",
    "extra_info",
    "finish_reason",
    "response_tokens",
)
"""Columns that a rule of TRL's form may name; entries of extra_info take precedence. The first
three are the ground truth."""
LOGS = ("log_extra", "log_metric")
"""Functions that TRL passes; the values they are called with become extra columns."""
OF_TRL = ("prompts", "completions", "completion_ids")
OF_VERL = ("data_sources", "solution_strs", "ground_truths", "extra_infos")
OF_OPENRLHF = ("queries", "prompts", "labels")
Shape = Literal["trl", "verl", "openrlhf"]
Offered = Mapping[str, Any]
"""Keyword arguments that one response offers to a rule."""


class MisfitError(Exception):
    """Misfit of a rule and a row: the end of a sentence that begins with the rule's name."""


@dataclass(frozen=True, slots=True)
class InLists:
    """A rule that takes lists."""

    function: Callable[..., Any]
    names: tuple[str, ...]
    """Parameters it names; with `any_column` it gets every other column as well."""
    required: tuple[str, ...]
    any_column: bool
    as_text: bool
    """Completions are strings even where the prompt is a conversation, as for ms-swift's
    classes."""
    shape: Shape = "trl"

    def call(self, offered: Offered) -> Any:
        """Return the verdict on one response."""
        return self.call_group([offered])[0]

    def call_group(self, group: Sequence[Offered]) -> list[Any]:
        """Return one verdict per response. MisfitError: a column is missing, or the returned value
        is no list of as many entries."""
        logged: list[dict[str, Any]] = [{} for _ in group]
        columns = self._columns(group, logged)
        missing = [name for name in self.required if name not in columns]
        missing = missing or _holes(group, self.required)
        if missing:
            raise MisfitError(self._lacks(missing, group[0]))
        hidden = (*LOGS, "completion_ids")
        arguments: dict[str, Any] = {}
        for name, values in columns.items():
            if name in self.names or (self.any_column and name not in hidden):
                arguments[name] = values
        returned = awaited(self.function(**arguments))
        if isinstance(returned, Mapping) and "rewards" in returned:
            returned = _of_openrlhf(returned, logged)
        verdicts: list[Any] = []
        for verdict, extra in zip(_entries(returned, len(group)), logged, strict=True):
            if not extra:
                verdicts.append(verdict)
            elif isinstance(verdict, Mapping):
                verdicts.append({**verdict, **extra})
            else:
                verdicts.append({"score": verdict, **extra})
        return verdicts

    def _columns(self, group: Sequence[Offered], logged: list[dict[str, Any]]) -> dict[str, Any]:
        if self.shape == "verl":
            columns: dict[str, Any] = {}
            for name in OF_VERL:
                columns[name] = [row.get(name.removesuffix("s")) for row in group]
            return columns
        if self.shape == "openrlhf":
            prompts = [_prompt_text(row) for row in group]
            responses = [row["solution_str"] for row in group]
            return {
                "queries": list(map(operator.add, prompts, responses)),
                "prompts": prompts,
                "labels": [row.get("ground_truth") for row in group],
            }
        return {**_extra_columns(group), **self._own(group), **_logs(logged)}

    def _own(self, group: Sequence[Offered]) -> dict[str, Any]:
        """prompts, completions and, where they are known, completion_ids."""
        columns: dict[str, Any] = {"prompts": [], "completions": []}
        for row in group:
            turns = row["messages"]
            text = row["solution_str"]
            as_text = row["plain_text"] or self.as_text
            columns["prompts"].append(turns[0]["content"] if row["plain_text"] else turns)
            columns["completions"].append(
                text if as_text else [{"role": "assistant", "content": text}]
            )
        ids = [row.get("completion_ids") for row in group]
        if all(ids):
            columns["completion_ids"] = [list(row_ids or ()) for row_ids in ids]
        return columns

    def _lacks(self, missing: list[str], offered: Offered) -> str:
        if "completion_ids" in missing:
            return (
                "needs completion_ids, and this response came as text, without its tokens; "
                "give reward.specs.<name>.tokenizer=<the policy's>"
            )
        if "trainer_state" in missing:
            return (
                "needs trainer_state, and rules do not know the step here; change weights by step"
                " with reward.weight_schedules"
            )
        entries = ", ".join(map(str, offered["extra_info"])) or "none"
        return (
            f"needs {', '.join(missing)}, which this row does not have: a column is"
            f" {', '.join(COLUMNS)}, or an entry of the row's extra_info (here: {entries})"
        )


def shape_of(names: Sequence[str]) -> Shape | None:
    """Return whose form a function with these parameters has; None where it takes no lists."""
    if "queries" in names:
        return "openrlhf"
    if "solution_strs" in names:
        return "verl"
    if any(name in names for name in OF_TRL):
        return "trl"
    return None


def awaited(returned: Any) -> Any:
    """Return the result of an async function; other values are returned unchanged."""
    import inspect  # imported late: it is loaded already where a form was read

    from rmrl.rewards.rules.forms import loop

    if inspect.isawaitable(returned):
        return loop().run(_result_of(returned))
    return returned


async def _result_of(returned: Any) -> Any:
    return await returned


def _prompt_text(offered: Offered) -> str:
    """Return the prompt as one text, in the place of OpenRLHF's templated prompt."""
    turns = offered["messages"]
    if len(turns) == 1:
        return str(turns[0]["content"])
    return "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in turns)


def _extra_columns(group: Sequence[Offered]) -> dict[str, list[Any]]:
    """Return every column that a row of the group has, with None for the rows that lack it."""
    rows = [_row_columns(offered) for offered in group]
    columns: dict[str, list[Any]] = {}
    for row in rows:
        for name in row:
            columns[name] = [other.get(name) for other in rows]
    return columns


def _holes(group: Sequence[Offered], names: Sequence[str]) -> list[str]:
    """Return those of `names` that are columns of some rows of the group only."""
    rows = [_row_columns(offered) for offered in group]
    holes: list[str] = []
    for name in names:
        count = sum(name in row for row in rows)
        if 0 < count < len(rows):
            holes.append(name)
    return holes


def _row_columns(offered: Offered) -> dict[str, Any]:
    columns = dict.fromkeys(("ground_truth", "answer", "solution"), offered.get("ground_truth"))
    columns |= {name: offered[name] for name in COLUMNS if name in offered}
    for name, value in offered["extra_info"].items():
        columns[str(name)] = value
    return columns


def _logs(logged: list[dict[str, Any]]) -> dict[str, Callable[[str, Any], None]]:
    def log_extra(column: str, values: Any) -> None:
        per_row = isinstance(values, list | tuple) and len(values) == len(logged)
        for i, row in enumerate(logged):
            row[str(column)] = values[i] if per_row else values

    def log_metric(name: str, value: Any) -> None:
        for row in logged:
            row[str(name)] = value

    return {"log_extra": log_extra, "log_metric": log_metric}


def _of_openrlhf(returned: Mapping[str, Any], logged: list[dict[str, Any]]) -> Any:
    """Return `rewards`. Values with one entry per response become columns; a single value is
    repeated in every row."""
    columns = {"scores": returned.get("scores")}
    if isinstance(returned.get("extra_logs"), Mapping):
        columns |= returned["extra_logs"]
    for name, values in columns.items():
        if values is None:
            continue
        if hasattr(values, "tolist"):
            values = values.tolist()
        per_row = isinstance(values, list) and len(values) == len(logged)
        for i, row in enumerate(logged):
            row[str(name)] = values[i] if per_row else values
    return returned["rewards"]


def _entries(returned: Any, count: int) -> list[Any]:
    """Return the entries of a list (or tuple, array, tensor) of `count`."""
    if (
        isinstance(returned, str | bytes | Mapping)
        or not hasattr(returned, "__len__")
        or not getattr(returned, "shape", (1,))
    ):
        text = repr(returned)[:80]
        raise MisfitError(
            f"returned {text} ({type(returned).__name__}); a list with one reward per completion"
            " is needed"
        )
    if len(returned) != count:
        noun = "completion" if count == 1 else "completions"
        raise MisfitError(
            f"returned {len(returned)} rewards for {count} {noun}; return exactly one per"
            " completion, in order"
        )
    return [returned[i] for i in range(count)]
