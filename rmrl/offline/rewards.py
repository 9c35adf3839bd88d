"""`from rmrl import Rewards`: a configuration's rewards as an object, for notebooks and other
programs.

The configuration, the checks, the scorer, the batches and the columns are `rmrl score`'s: equal
rows get equal scores. Rules, servers and the engines hf and sentence_transformers need no Ray.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeVar

from rmrl.cluster.watch import unless_lost
from rmrl.config.load import shipped
from rmrl.config.schema import ScoreConfig
from rmrl.config.section import read_section, section_path
from rmrl.config.typed import config_of
from rmrl.config.yaml_file import Configuration, content_of
from rmrl.data.column_names import ColumnNames, column_names
from rmrl.data.frames import mappings_of
from rmrl.data.responses import AnsweredRow, answered, batches, groups_together
from rmrl.data.rows import Row
from rmrl.data.traces.table import as_row
from rmrl.errors import ConfigError, DataError
from rmrl.offline.check_scoring import CheckedScoring, check_first_rows, check_scoring
from rmrl.offline.open_scorer import open_scorer, token_counter
from rmrl.offline.progress import counting
from rmrl.offline.response_rows import response_rows
from rmrl.offline.score import batch_sizes, judge_missing
from rmrl.offline.score_columns import score_columns, transformed_columns
from rmrl.offline.score_table import ScoreTable
from rmrl.offline.summary import Summary
from rmrl.registry import did_you_mean
from rmrl.rewards.session.scorer import Scorer

Result = TypeVar("Result")

SECTIONS = ("reward", "data", "trainer", "ray_kwargs", "columns", "over_budget")
"""What a configuration with a key `reward` may hold; as in `rmrl score`."""
_OF_FILES = ("files", "max_rows", "sample", "on_bad_row")
_OF_TRAINING = "actor_rollout_ref"
_ROWS = "rows"


_BESIDE_A_TRAINER = 0.5
"""An engine's share, where another trainer will need free memory."""


class AsyncRewards:
    """Rewards for programs with an event loop: `Rewards`, whose methods are awaited.

        async with AsyncRewards({"models": ["gsm8k"]}) as rewards:
            table = await rewards.score(prompts, responses, references=answers)

    All calls belong to one event loop. Calls that overlap are served one after another.
    """

    def __init__(self, config: Configuration, *, in_training: bool = False) -> None:
        self._in_training = in_training
        config = content_of(config)
        score_config = _score_config(config)
        if in_training and "over_budget" not in config:
            score_config.over_budget = "fail"
        engine = score_config.reward.engine
        if in_training and score_config.trainer.memory_budget_gb is None:
            engine.gpu_memory_utilization = engine.gpu_memory_utilization or _BESIDE_A_TRAINER
        self._checked = check_scoring(
            score_config,
            shipped_functions=shipped("reward_functions"),
            needs_out=False,
            needs_files=False,
        )
        self._stack = AsyncExitStack()
        self._scorer: Scorer | None = None
        self._fresh: Mapping[str, Any] = {}
        self._turn = asyncio.Lock()
        self._closed = False

    @classmethod
    def from_config(cls, path: str | Path) -> Self:
        return cls(path)

    @property
    def checked(self) -> CheckedScoring:
        """The configuration with everything that was resolved from it."""
        return self._checked

    async def score(
        self,
        prompts: Sequence[Any],
        responses: Sequence[Any],
        *,
        references: Sequence[Any] | None = None,
        **columns: Any,
    ) -> ScoreTable:
        names = column_names(self._checked.config.data)
        return await self.score_rows(
            rows_of(prompts, responses, references=references, columns=columns, names=names)
        )

    async def score_rows(
        self, rows: Iterable[Mapping[str, Any]], *, over_budget: str | None = None
    ) -> ScoreTable:
        raw_rows = [as_row(row, f"{_ROWS} row {n}") for n, row in enumerate(mappings_of(rows))]
        rows_of_data: list[Row] = []
        names: dict[str, None] = {}
        for number, row in enumerate(raw_rows):
            rows_of_data.append(Row(file=_ROWS, label=_ROWS, number=number, fields=dict(row)))
            names |= dict.fromkeys(row)
        tokens = token_counter(self._checked)
        prepared = list(answered(rows_of_data, self._checked.config.data, count_tokens=tokens))
        if not prepared:
            raise DataError("there are no rows to score; give at least one prompt with a response")
        async with self._turn:
            scorer = await self._opened(prepared)
            total = sum(len(row.texts) for row in prepared)
            showing: AbstractContextManager[Callable[[int], None] | None] = nullcontext()
            if not self._in_training:
                showing = counting(total)
            with showing as on_progress:
                table = await unless_lost(_scored(self._checked, scorer, prepared, on_progress))
        judge_missing(self._checked, table.summary, over_budget=over_budget)
        raw_columns = {name: [row.get(name) for row in raw_rows] for name in names}
        return replace(table, columns={**raw_columns, **table.columns})

    async def rest(self) -> None:
        async with self._turn:
            if self._scorer is not None:
                await unless_lost(self._scorer.residency.rest())

    async def close(self) -> None:
        """End engines, workers and connections. Safe to call twice."""
        self._closed = True
        self._scorer = None
        await self._stack.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def _opened(self, rows: Sequence[AnsweredRow]) -> Scorer:
        """The scorer as behind its start: each call sees running statistics over its own rows
        alone, unless the calls are a training's steps."""
        if self._closed:
            raise ConfigError("these rewards are closed; make new ones with Rewards(...)")
        if self._scorer is None:
            await asyncio.to_thread(check_first_rows, self._checked, rows)
            opening = open_scorer(self._checked)
            self._scorer = await self._stack.enter_async_context(opening)
            self._fresh = self._scorer.state_dict()
        if not self._in_training:
            self._scorer.load_state_dict(self._fresh)
        return self._scorer


class Rewards:
    """Rewards as an object: prompts and responses in, a score table out.

        with Rewards({"models": ["gsm8k"]}) as rewards:
            table = rewards.score(prompts, responses, references=answers)

    Works with and without an event loop that runs, as in notebooks: it has its own, on a thread.
    Engines start with the first call and end with the block or `close`.
    """

    def __init__(self, config: Configuration, *, in_training: bool = False) -> None:
        """`config`: a section `reward` ({"models": [...], "weights": [...], ...}), or a mapping
        with that section and others from `rmrl score` ({"reward": {...}, "columns": ["raw"],
        "trainer": {"device": "cpu"}}). The whole and `reward` may each be a YAML file's path
        ({"reward": "section.yaml", ...}), or rewards alone: "gsm8k", a function, ["gsm8k", short].
        With `in_training` each call is a step: transforms'
        running statistics go on from call to call, and more missing verdicts than allowed raise
        MissingVerdictsError unless `over_budget` is given.

        What `rmrl score` prints goes to the loggers below "rmrl", and on a terminal a bar shows the
        progress of a call. Raises ConfigError with every
        problem that shows before rows are there.
        """
        self._rewards = AsyncRewards(config, in_training=in_training)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._forgotten: weakref.finalize[..., Self] | None = None

    @classmethod
    def from_config(cls, path: str | Path) -> Self:
        """Rewards from a YAML file: what the constructor takes, or a training run's config.yaml,
        whose sections `reward` and `ray_kwargs` are used.

        Raises ConfigError as the constructor does and where the file cannot be read.
        """
        return cls(path)

    def score(
        self,
        prompts: Sequence[Any],
        responses: Sequence[Any],
        *,
        references: Sequence[Any] | None = None,
        **columns: Any,
    ) -> ScoreTable:
        """Score responses; one table row per prompt.

        `prompts`: strings or message lists. `responses`: for each prompt a string, or its responses
        in a list. `references`: for each prompt its reference answer. `columns`: further row
        columns (data_source, extra_info, rm_prompt, ...), each a list with a value per prompt, or
        one string for all.
        Raises DataError for lists that do not fit together and for malformed values, ConfigError
        for what the first rows show (packages, servers, rules that raise on them all), RewardError,
        InfrastructureError and StallError as `rmrl score` does.
        """
        scoring = self._rewards.score(prompts, responses, references=references, **columns)
        return self._finish(scoring)

    def score_rows(
        self, rows: Iterable[Mapping[str, Any]], *, over_budget: str | None = None
    ) -> ScoreTable:
        """Score rows as they stand in a file for `rmrl score`: mappings with `prompt`, `response`
        (or `responses`) and whatever else the rewards read, or a data frame or table with these
        columns (pandas, polars, pyarrow, datasets). `over_budget`: "warn" or "fail" in this call,
        None: as configured. Errors as in `score`."""
        return self._finish(self._rewards.score_rows(rows, over_budget=over_budget))

    @property
    def checked(self) -> CheckedScoring:
        """The configuration with everything that was resolved from it."""
        return self._rewards.checked

    def rest(self) -> None:
        """Put the engines away until the next call, as `engine.put_away` says, so that others have
        their memory. Engines with residency=resident and in pools stay."""
        self._finish(self._rewards.rest())

    def close(self) -> None:
        """End engines, workers and connections. Safe to call twice."""
        self._finish(self._rewards.close())
        loop = self._loop
        self._loop = None
        if self._forgotten is not None:
            self._forgotten.detach()
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _finish(self, work: Coroutine[Any, Any, Result]) -> Result:
        if self._loop is None:
            self._loop = _loop_on_a_thread()
            self._forgotten = weakref.finalize(self, _close_and_stop, self._rewards, self._loop)
            self._forgotten.atexit = False  # threads and workers end with the process
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise


def rows_of(
    prompts: Sequence[Any],
    responses: Sequence[Any],
    *,
    references: Sequence[Any] | None,
    columns: Mapping[str, Any],
    names: ColumnNames,
) -> Iterator[dict[str, Any]]:
    """One row per prompt, under the configuration's names. Raises DataError where the lists
    differ in length."""
    lists: dict[str, Any] = {names.at("prompt"): prompts, names.at("response"): responses}
    if references is not None:
        lists[names.paths.get("reference", "ground_truth")] = references
    for name, values in columns.items():
        lists[name] = [values] * len(prompts) if isinstance(values, str) else values
    for name, values in lists.items():
        if isinstance(values, str | Mapping) or not hasattr(values, "__len__"):
            raise DataError(f"'{name}': saw {values!r:.80}; need a list with a value per prompt")
        if len(values) != len(prompts):
            raise DataError(
                f"'{name}' has {len(values)} values for {len(prompts)} prompts; need one per prompt"
            )
    for values in zip(*lists.values(), strict=True):
        yield dict(zip(lists, values, strict=True))


def _score_config(config: Mapping[str, Any]) -> ScoreConfig:
    if "reward" not in config:
        return config_of({"reward": config}, ScoreConfig)
    if _OF_TRAINING in config:
        config = {name: config[name] for name in ("reward", "ray_kwargs") if name in config}
    given = config["reward"]
    if isinstance(given, str | Path):
        given = read_section(section_path(str(given), None))
    config = {**config, "reward": content_of(given)}
    problems = [
        f"{name}: no section of rewards in Python{did_you_mean(name, SECTIONS)}; there are"
        f" {', '.join(SECTIONS)}"
        for name in config
        if name not in SECTIONS
    ]
    data = config.get("data")
    if isinstance(data, Mapping):
        problems += [
            f"data.{name} is about files; rows are given to score(...) here"
            for name in _OF_FILES
            if name in data
        ]
    if problems:
        raise ConfigError(problems)
    return config_of(config, ScoreConfig)


async def _scored(
    checked: CheckedScoring,
    scorer: Scorer,
    rows: Sequence[AnsweredRow],
    on_progress: Callable[[int], None] | None,
) -> ScoreTable:
    """The added columns in `rows`' order, scored in `rmrl score`'s batches. `on_progress`: is told
    how many responses are scored."""
    ordered = list(rows)
    if checked.whole_groups:
        ordered = groups_together(rows)
    summary = Summary()
    columns: dict[str, list[Any]] = {}
    transformed: dict[str, list[Any]] = {}
    sizes = batch_sizes(checked, done=0)
    for batch in batches(iter(ordered), sizes, whole_groups=checked.whole_groups):
        rewards = await scorer.score(response_rows(batch), within_budget=False)
        summary.add(rewards, busy_s=scorer.take_seconds())
        added = score_columns(batch, rewards, further=checked.config.columns)
        _place(added, batch, columns, len(rows))
        _place(transformed_columns(batch, rewards), batch, transformed, len(rows))
        if on_progress is not None:
            on_progress(summary.rows)
    return ScoreTable(columns, summary, transformed)


def _place(
    added: Mapping[str, Sequence[Any]],
    batch: Sequence[AnsweredRow],
    columns: dict[str, list[Any]],
    count: int,
) -> None:
    """Write a batch's values into columns with `count` rows, where its rows stand."""
    for name, values in added.items():
        column = columns.setdefault(name, [None] * count)
        for row, value in zip(batch, values, strict=True):
            column[row.number] = value if row.several else value[0]


def _loop_on_a_thread() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()

    def run() -> None:
        try:
            loop.run_forever()
        finally:
            loop.close()

    threading.Thread(target=run, name="rmrl-rewards", daemon=True).start()
    return loop


def _close_and_stop(rewards: AsyncRewards, loop: asyncio.AbstractEventLoop) -> None:
    """Close on the loop's thread, without waiting: the caller may be that thread."""

    async def close() -> None:
        try:
            await rewards.close()
        finally:
            loop.stop()

    asyncio.run_coroutine_threadsafe(close(), loop)
