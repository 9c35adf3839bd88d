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
"""What a rule of TRL's form may name besides the entries of extra_info, which win; the first three
are the ground truth."""
LOGS = ("log_extra", "log_metric")
"""Functions that TRL hands over; what they are called with becomes extra columns of the score."""
OF_TRL = ("prompts", "completions", "completion_ids")
OF_VERL = ("data_sources", "solution_strs", "ground_truths", "extra_infos")
OF_OPENRLHF = ("queries", "prompts", "labels")
Shape = Literal["trl", "verl", "openrlhf"]
Offered = Mapping[str, Any]
"""What is known of one response."""


class MisfitError(Exception):
    """A rule and a row do not fit: the end of a sentence that begins with the rule's name."""


@dataclass(frozen=True, slots=True)
class InLists:
    """A rule that takes lists."""

    function: Callable[..., Any]
    names: tuple[str, ...]
    """What it names; with `any_column` it is given every column besides."""
    required: tuple[str, ...]
    any_column: bool
    as_text: bool
    """Completions are strings even where the prompt is a conversation, as for ms-swift's
    classes."""
    shape: Shape = "trl"

    def call(self, offered: Offered) -> Any:
        """The verdict on one response."""
        return self.call_group([offered])[0]

    def call_group(self, group: Sequence[Offered]) -> list[Any]:
        """A verdict per response. MisfitError: a column is missing, or what was returned is no list
        of as many entries."""
        logged: list[dict[str, Any]] = [{} for _ in group]
        columns = self._columns(group, logged)
        missing = [name for name in self.required if name not in columns] or _holes(
            group, self.required
        )
        if missing:
            raise MisfitError(self._lacks(missing, group[0]))
        hidden = (*LOGS, "completion_ids")
        wanted = {
            k: v
            for k, v in columns.items()
            if k in self.names or (self.any_column and k not in hidden)
        }
        returned = awaited(self.function(**wanted))
        if isinstance(returned, Mapping) and "rewards" in returned:
            returned = _of_openrlhf(returned, logged)
        verdicts = _entries(returned, len(group))
        return [
            _with_columns(verdict, more) for verdict, more in zip(verdicts, logged, strict=True)
        ]

    def _columns(self, group: Sequence[Offered], logged: list[dict[str, Any]]) -> dict[str, Any]:
        if self.shape == "verl":
            singular = dict(
                zip(
                    OF_VERL,
                    ("data_source", "solution_str", "ground_truth", "extra_info"),
                    strict=True,
                )
            )
            return {name: [each.get(key) for each in group] for name, key in singular.items()}
        if self.shape == "openrlhf":
            prompts = [_prompt_text(each) for each in group]
            queries = [
                prompt + each["solution_str"] for prompt, each in zip(prompts, group, strict=True)
            ]
            return {
                "queries": queries,
                "prompts": prompts,
                "labels": [each.get("ground_truth") for each in group],
            }
        return {**_extra_columns(group), **self._own(group), **_logs(logged)}

    def _own(self, group: Sequence[Offered]) -> dict[str, Any]:
        """prompts, completions and, where they are known, completion_ids."""
        own: dict[str, Any] = {
            "prompts": [_prompt(each) for each in group],
            "completions": [self._completion(each) for each in group],
        }
        ids = [each.get("completion_ids") for each in group]
        if all(ids):
            return {**own, "completion_ids": [list(each) for each in ids if each]}
        return own

    def _completion(self, offered: Offered) -> Any:
        text = offered["solution_str"]
        if offered["plain_text"] or self.as_text:
            return text
        return [{"role": "assistant", "content": text}]

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
    """Whose form a function with these parameters has; None where it takes no lists."""
    if "queries" in names:
        return "openrlhf"
    if "solution_strs" in names:
        return "verl"
    if any(name in names for name in OF_TRL):
        return "trl"
    return None


def awaited(returned: Any) -> Any:
    """What an async function returns, once it is there; everything else as it is."""
    import inspect  # here, not above: inspect is known already where a form was made

    from rmrl.rewards.rules.forms import loop

    if inspect.isawaitable(returned):
        return loop().run(_result_of(returned))
    return returned


async def _result_of(returned: Any) -> Any:
    return await returned


def _prompt(offered: Offered) -> Any:
    turns = offered["messages"]
    if offered["plain_text"]:
        return turns[0]["content"]
    return turns


def _prompt_text(offered: Offered) -> str:
    """The prompt as one text, where OpenRLHF sends the policy's templated one."""
    turns = offered["messages"]
    if len(turns) == 1:
        return str(turns[0]["content"])
    return "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in turns)


def _extra_columns(group: Sequence[Offered]) -> dict[str, list[Any]]:
    """Every column that a row of the group has; None for the rows that lack it."""
    rows = [_row_columns(each) for each in group]
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _holes(group: Sequence[Offered], names: Sequence[str]) -> list[str]:
    """Those of `names` that are columns of some rows of the group only."""
    rows = [_row_columns(each) for each in group]
    return [
        name
        for name in names
        if any(name in row for row in rows) and not all(name in row for row in rows)
    ]


def _row_columns(offered: Offered) -> dict[str, Any]:
    truth = offered.get("ground_truth")
    known = {"ground_truth": truth, "answer": truth, "solution": truth} | {
        k: offered[k] for k in COLUMNS if k in offered
    }
    return {str(name): value for name, value in {**known, **offered["extra_info"]}.items()}


def _logs(logged: list[dict[str, Any]]) -> dict[str, Callable[[str, Any], None]]:
    def log_extra(column: str, values: Any) -> None:
        if isinstance(values, list | tuple) and len(values) == len(logged):
            each = values
        else:
            each = [values] * len(logged)
        for row, value in zip(logged, each, strict=True):
            row[str(column)] = value

    def log_metric(name: str, value: Any) -> None:
        for row in logged:
            row[str(name)] = value

    return {"log_extra": log_extra, "log_metric": log_metric}


def _of_openrlhf(returned: Mapping[str, Any], logged: list[dict[str, Any]]) -> Any:
    """`rewards`; what else has one entry per response becomes columns, and a number alone stands in
    every row."""
    extra = returned.get("extra_logs")
    more = {"scores": returned.get("scores"), **(extra if isinstance(extra, Mapping) else {})}
    for name, values in more.items():
        if values is None:
            continue
        values = values.tolist() if hasattr(values, "tolist") else values
        if isinstance(values, list) and len(values) == len(logged):
            each = values
        else:
            each = [values] * len(logged)
        for row, value in zip(logged, each, strict=True):
            row[str(name)] = value
    return returned["rewards"]


def _with_columns(verdict: Any, more: Mapping[str, Any]) -> Any:
    if not more:
        return verdict
    if isinstance(verdict, Mapping):
        return {**verdict, **more}
    return {"score": verdict, **more}


def _entries(returned: Any, count: int) -> list[Any]:
    """The entries of a list (or tuple, array, tensor) of `count`."""
    if (
        isinstance(returned, str | bytes | Mapping)
        or not hasattr(returned, "__len__")
        or not getattr(returned, "shape", (1,))
    ):
        shown = repr(returned)[:80]
        raise MisfitError(
            f"returned {shown} ({type(returned).__name__}); a list with one reward per completion"
            " is needed"
        )
    if len(returned) != count:
        noun = "completion" if count == 1 else "completions"
        raise MisfitError(
            f"returned {len(returned)} rewards for {count} {noun}; return exactly one per"
            " completion, in order"
        )
    return [returned[i] for i in range(count)]
