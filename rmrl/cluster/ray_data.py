"""Records streamed through an actor pool by Ray Data, which reads, schedules, holds back readers
that are ahead of the actors, and repeats what a lost process or node had.

    readers (tasks) -> records -> worker(*arguments)(record) (actors on all nodes) -> results, in
      the order of the readers and of their records
"""

# pyright: basic
# Ray Data ships incomplete types.

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa
import ray
import ray.data
from ray.data import ActorPoolStrategy, DataContext, Datasource, ReadTask
from ray.data.block import BlockMetadata
from ray.exceptions import RayError

from rmrl import errors
from rmrl.errors import ConfigError, InfrastructureError, RmrlError

Record = Mapping[str, Any]
"""Numbers, texts, bytes, and lists of numbers."""
Reader = Callable[[], Iterable[Record]]
Worker = Callable[[Record], Record]

_BLOCK_BYTES = 1
"""Every record travels by itself: an actor takes one at a time, so that all actors have work, and a
result is there as soon as it is finished."""
_ERROR = "error of the worker"
_REPEATS = 3
"""A record is repeated so often after the process of its actor has died. Without a limit, one that
ends its process would be repeated forever."""
_READER_CPUS = 0.1
"""A reader mostly waits for the disk. It is not merged into the actors, which have other needs."""


def stream(
    readers: Sequence[Reader],
    worker: Callable[..., Worker],
    arguments: Sequence[Any],
    *,
    workers: int,
    cpus: float,
    gpus: float = 0.0,
) -> Iterator[Record]:
    """Yield every record's result. Ray runs already.

    `worker` makes an actor's object from `arguments`; `workers`: how many actors, each with `cpus`
    and `gpus`. Raises the workers' RmrlErrors, InfrastructureError for what Ray cannot repeat, or
    has repeated 3 times.
    """
    with execution_options():
        data = ray.data.read_datasource(
            _Source(readers),
            override_num_blocks=len(readers),
            num_cpus=_READER_CPUS,
        )
        data = data.map_batches(
            _OnTables,
            fn_constructor_args=(worker, tuple(arguments)),
            batch_size=1,
            batch_format="pyarrow",
            compute=ActorPoolStrategy(size=workers),
            num_cpus=max(cpus - _READER_CPUS, 0.0),
            num_gpus=gpus or None,
            max_task_retries=_REPEATS,
        )
        try:
            tables: Any = data.iter_batches(batch_size=None, batch_format="pyarrow")
            for table in tables:
                for record in table.to_pylist():
                    if record[_ERROR]:
                        raise _error_of(record[_ERROR])
                    yield record
        except RayError as error:
            words = (str(error).strip().splitlines() or [type(error).__name__])[-1]
            raise InfrastructureError(f"Ray Data could not finish the job: {words}") from error


def cluster_actors(*, cpus: float, gpus: float = 0.0) -> int:
    """Return how many actors with `cpus` and `gpus` each the cluster's nodes have room for."""
    return actors_that_fit(ray.nodes(), cpus=cpus, gpus=gpus)


def actors_that_fit(nodes: Iterable[Mapping[str, Any]], *, cpus: float, gpus: float = 0.0) -> int:
    """Return `nodes`' room, as `ray.nodes()` describes them. An actor is on one node."""
    count = 0
    for node in nodes:
        if not node["Alive"]:
            continue
        resources = node["Resources"]
        fitting = resources.get("CPU", 0.0) // cpus
        if gpus:
            fitting = min(fitting, resources.get("GPU", 0.0) // gpus)
        count += int(fitting)
    return count


class _Source(Datasource):
    """A source with a task for every reader."""

    def __init__(self, readers: Sequence[Reader]) -> None:
        super().__init__()
        self._readers = readers

    def estimate_inmemory_data_size(self) -> int | None:
        return None

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: DataContext | None = None,
    ) -> list[ReadTask]:
        del parallelism, data_context
        tasks: list[ReadTask] = []
        for reader in self._readers:
            metadata = BlockMetadata(
                num_rows=None, size_bytes=None, input_files=None, exec_stats=None
            )
            blocks = partial(_blocks, reader)
            tasks.append(ReadTask(blocks, metadata, per_task_row_limit=per_task_row_limit))
        return tasks


def _blocks(reader: Reader) -> Iterator[pa.Table]:
    for record in reader():
        yield pa.Table.from_pylist([dict(record)])


class _OnTables:
    """An actor's object; takes and returns records as Arrow tables."""

    def __init__(self, make: Callable[..., Worker], arguments: Sequence[Any]) -> None:
        self._make = make
        self._arguments = arguments
        self._worker: Worker | None = None

    def __call__(self, table: pa.Table) -> pa.Table:
        results: list[dict[str, Any]] = []
        for record in table.to_pylist():
            try:
                if self._worker is None:
                    self._worker = self._make(*self._arguments)
                results.append({**self._worker(record), _ERROR: ""})
            except RmrlError as error:
                # As a result, since Ray Data keeps neither the type nor the words of an exception.
                results.append({_ERROR: _described(error)})
        return pa.Table.from_pylist(results)


@contextmanager
def execution_options() -> Iterator[None]:
    """Set Ray Data's options for the block."""
    before = DataContext.get_current()
    context = before.copy()
    context.execution_options.preserve_order = True
    context.target_max_block_size = _BLOCK_BYTES
    context.target_min_block_size = 1
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    if hasattr(context, "execution_no_progress_timeout_s"):
        # Scoring a record may take hours; engines have deadlines of their own.
        context.execution_no_progress_timeout_s = -1
    logger = logging.getLogger("ray.data")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    DataContext._set_current(context)
    try:
        yield
    finally:
        DataContext._set_current(before)
        logger.setLevel(level)


def _described(error: RmrlError) -> str:
    content: Any = str(error)
    if isinstance(error, ConfigError):
        content = error.problems
    return json.dumps([type(error).__name__, content])


def _error_of(text: str) -> RmrlError:
    """Return the error that `_described` wrote."""
    name, content = json.loads(text)
    kind = getattr(errors, name, RmrlError)
    return kind(content)
