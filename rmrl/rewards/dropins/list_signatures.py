"""Rules that take lists, one entry per response in a prompt's group, as other trainers call them.

    reward(prompts, completions, completion_ids, **columns) -> list of numbers and None      TRL
    __call__(completions, **columns) of a class, with response_token_ids, messages and
      is_truncated among the columns      ms-swift
    compute_score(data_sources, solution_strs, ground_truths, extra_infos) -> list            verl's
      batch manager
    reward_func(queries, prompts, labels) -> tensor, or {"rewards": tensor, "scores": ...,
      "extra_logs": {...}}     OpenRLHF

Rule workers import this module: it needs the standard library only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

from rmrl.data.trainer_rows import REFERENCES

COLUMNS = (
    *REFERENCES,
    "data_source",
    "extra_info",
    "finish_reason",
    "response_tokens",
)
"""Columns that a rule of TRL's form may name; entries of extra_info take precedence."""
LOGS = ("log_extra", "log_metric")
"""Functions that TRL passes. The values they are called with become extra columns."""
OF_TRL = ("prompts", "completions", "completion_ids")
OF_SWIFT = ("infer_requests",)
"""Older name of ms-swift's `completions`; ms-swift passes them by position."""
OF_VERL = ("data_sources", "solution_strs", "ground_truths", "extra_infos")
OF_OPENRLHF = ("queries", "prompts", "labels")
Shape = Literal["trl", "verl", "openrlhf"]
Offered = Mapping[str, Any]
"""Keyword arguments that one response offers to a rule."""


class MisfitError(Exception):
    """A rule and a row that do not fit: a sentence's end that begins with the rule's name."""


@dataclass(frozen=True, slots=True)
class InLists:
    """A rule that takes lists."""

    function: Callable[..., Any]
    names: tuple[str, ...]
    """Parameters it names. With `any_column` it gets every other column as well."""
    required: tuple[str, ...]
    any_column: bool
    as_text: bool
    """A class of ms-swift's form: completions are strings even where the prompt is a conversation,
    and there are the columns of `swift_columns`."""
    shape: Shape = "trl"

    @property
    def reads_token_ids(self) -> bool:
        """Whether it can use the responses' tokens."""
        named = {"completion_ids", "response_token_ids"}.intersection(self.names)
        return bool(named) or (self.as_text and self.any_column)

    def call(self, offered: Offered) -> Any:
        """Return the verdict on one response."""
        return self.call_group([offered])[0]

    def call_group(self, group: Sequence[Offered]) -> list[Any]:
        """Return one verdict per response. MisfitError: a column is missing, or the returned value
        is no list of as many entries."""
        logged: list[dict[str, Any]] = [{} for _ in group]
        rows = list(map(row_columns, group))
        if self.shape == "verl":
            columns = verl_columns(group)
        elif self.shape == "openrlhf":
            columns = openrlhf_columns(group)
        else:
            columns = self._trl_columns(group, rows, logged)
        missing = [name for name in self.required if name not in columns]
        if not missing:
            for name in self.required:
                count = sum(name in row for row in rows)
                if 0 < count < len(rows):
                    missing.append(name)
        if missing:
            raise MisfitError(self._lacks(missing, group[0]))
        hidden = (*LOGS, "completion_ids")
        arguments: dict[str, Any] = {
            name: values
            for name, values in columns.items()
            if name in self.names or (self.any_column and name not in hidden)
        }
        returned = awaited(self.function(**arguments))
        if isinstance(returned, Mapping) and "rewards" in returned:
            log_openrlhf(returned, logged)
            returned = returned["rewards"]
        if self.shape == "openrlhf" and len(group) == 1 and is_number(returned):
            returned = [returned]  # OpenRLHF itself passes one response at a time
        verdicts: list[Any] = []
        for verdict, extra in zip(checked_entries(returned, len(group)), logged, strict=True):
            if not extra:
                verdicts.append(verdict)
            elif isinstance(verdict, Mapping):
                verdicts.append({**verdict, **extra})
            else:
                verdicts.append({"score": verdict, **extra})
        return verdicts

    def _trl_columns(
        self,
        group: Sequence[Offered],
        rows: Sequence[dict[str, Any]],
        logged: list[dict[str, Any]],
    ) -> dict[str, Any]:
        """Every column that a row has, with None for rows that lack it; prompts, completions,
        completion_ids where they are known, and the functions of LOGS."""

        def log_extra(column: str, values: Any) -> None:
            per_row = isinstance(values, list | tuple) and len(values) == len(logged)
            log(logged, column, values, per_row=per_row)

        def log_metric(name: str, value: Any) -> None:
            log(logged, name, value, per_row=False)

        columns: dict[str, Any] = {}
        for name in dict.fromkeys(chain.from_iterable(rows)):
            columns[name] = [row.get(name) for row in rows]
        prompts: list[Any] = []
        completions: list[Any] = []
        for offered in group:
            turns = offered["messages"]
            text = offered["solution_str"]
            as_text = offered["plain_text"] or self.as_text
            prompts.append(turns[0]["content"] if offered["plain_text"] else turns)
            completions.append(text if as_text else [{"role": "assistant", "content": text}])
        columns |= {"prompts": prompts, "completions": completions}
        ids = [offered.get("completion_ids") for offered in group]
        if all(ids):
            columns["completion_ids"] = [list(row_ids or ()) for row_ids in ids]
        if self.as_text:
            columns |= swift_columns(columns, group)
        return {**columns, "log_extra": log_extra, "log_metric": log_metric}

    def _lacks(self, missing: list[str], offered: Offered) -> str:
        ids = [name for name in ("completion_ids", "response_token_ids") if name in missing]
        if ids:
            return (
                f"needs {ids[0]}, and this response came as text, without its tokens; "
                "give reward.specs.<name>.tokenizer=<the policy's>"
            )
        if "trainer_state" in missing:
            return (
                "needs trainer_state, and rules do not get the step here; change weights by step"
                " with reward.weight_schedules"
            )
        if set(missing) <= set(REFERENCES):
            return f"needs {', '.join(missing)}, and this row has no reference answer"
        entries = ", ".join(map(str, offered["extra_info"])) or "none"
        return (
            f"needs {', '.join(missing)}, which this row does not have: a column is"
            f" {', '.join(COLUMNS)}, or an entry of the row's extra_info (here: {entries})"
        )


def shape_of(names: Sequence[str]) -> Shape | None:
    """Return whose form a function with these parameters has, None where it takes no lists."""
    if "queries" in names:
        return "openrlhf"
    if "solution_strs" in names:
        return "verl"
    if not set(OF_TRL + OF_SWIFT).isdisjoint(names):
        return "trl"
    return None


@functools.cache
def loop() -> Any:
    """Return the one event loop for all calls in a process: clients that a module creates belong to
    the loop they were first used on."""
    # Imported late: most rules are not async, and every new worker would wait for it.
    import asyncio

    return asyncio.Runner()


def awaited(returned: Any) -> Any:
    """Return an async function's result; other values are returned unchanged."""
    import inspect  # imported late: it is loaded already where a form was read

    if not inspect.isawaitable(returned):
        return returned

    async def result() -> Any:
        return await returned

    return loop().run(result())


def verl_columns(group: Sequence[Offered]) -> dict[str, list[Any]]:
    """Return the columns OF_VERL, with None where a row has no entry."""
    columns: dict[str, list[Any]] = {}
    for name in OF_VERL:
        columns[name] = [offered.get(name.removesuffix("s")) for offered in group]
    return columns


def openrlhf_columns(group: Sequence[Offered]) -> dict[str, list[Any]]:
    """Return the columns OF_OPENRLHF. A prompt is `prompt_text`, instead of OpenRLHF's templated
    prompt. A query is the prompt and the response behind it."""
    columns: dict[str, list[Any]] = {name: [] for name in OF_OPENRLHF}
    for offered in group:
        prompt = prompt_text(offered["messages"])
        columns["queries"].append(prompt + offered["solution_str"])
        columns["prompts"].append(prompt)
        columns["labels"].append(offered.get("ground_truth"))
    return columns


def prompt_text(turns: Sequence[Mapping[str, Any]]) -> str:
    """Return a prompt as one text: a single turn's content, or all turns behind their roles."""
    if len(turns) == 1:
        return str(turns[0]["content"])
    return "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in turns)


def swift_columns(columns: Mapping[str, Any], group: Sequence[Offered]) -> dict[str, list[Any]]:
    """Return what ms-swift passes besides TRL's columns: infer_requests (the completions),
    messages with the response behind the prompt, is_truncated, and response_token_ids where
    they are known."""
    messages: list[list[Any]] = []
    truncated: list[bool] = []
    for offered in group:
        answer = {"role": "assistant", "content": offered["solution_str"]}
        messages.append([*offered["messages"], answer])
        truncated.append(offered.get("finish_reason") == "length")
    own: dict[str, list[Any]] = {
        "infer_requests": columns["completions"],
        "messages": messages,
        "is_truncated": truncated,
    }
    if "completion_ids" in columns:
        own["response_token_ids"] = columns["completion_ids"]
    for name in own:
        if name in columns:  # a column of the data set
            own[name] = columns[name]
    return own


def row_columns(offered: Offered) -> dict[str, Any]:
    """Return the columns that a row offers to a rule in TRL's form, see COLUMNS."""
    columns: dict[str, Any] = {name: offered[name] for name in COLUMNS if name in offered}
    reference = columns.pop("ground_truth", None)
    if reference is not None:
        columns |= dict.fromkeys(REFERENCES, reference)
    for name, value in offered["extra_info"].items():
        columns[str(name)] = value
    return columns


def log(logged: list[dict[str, Any]], name: str, values: Any, *, per_row: bool) -> None:
    """Write an extra column: one of `values` into each row, or all of `values` into every row."""
    for i, row in enumerate(logged):
        row[str(name)] = values[i] if per_row else values


def log_openrlhf(returned: Mapping[str, Any], logged: list[dict[str, Any]]) -> None:
    """Write `scores` and `extra_logs` from a returned dict. Values with one entry per response
    become columns. A single value is repeated in every row."""
    columns = {"scores": returned.get("scores")}
    if isinstance(returned.get("extra_logs"), Mapping):
        columns |= returned["extra_logs"]
    for name, values in columns.items():
        if values is None:
            continue
        if hasattr(values, "tolist"):
            values = values.tolist()
        per_row = isinstance(values, list) and len(values) == len(logged)
        log(logged, name, values, per_row=per_row)


def is_number(value: Any) -> bool:
    """Return whether the value is one number, or an array or tensor without dimensions."""
    return isinstance(value, int | float) or getattr(value, "shape", None) == ()


def checked_entries(returned: Any, count: int) -> list[Any]:
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
