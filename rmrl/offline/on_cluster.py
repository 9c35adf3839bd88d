"""score.engine=ray_data: a scoring job's batches on all nodes in a Ray cluster.

    files -> pieces (Ray Data's tasks) -> PieceScorer (Ray Data's actors) -> scores -> durable parts

A piece's rows are scored by the local engine's code and come back in row order, so that parts,
resuming and the output are those of any other job. Every node sees the files and the reward
functions under the same paths.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rmrl.config.load import shipped
from rmrl.config.schema import ClusterConfig, ScoreConfig
from rmrl.data.pieces import Piece, ipc_bytes, pieces, rows_of, table_of
from rmrl.data.responses import ResponseReader
from rmrl.data.row_index import Survey
from rmrl.data.rows import file_labels
from rmrl.errors import ConfigError, DataError
from rmrl.offline.check_scoring import CheckedScoring, check_scoring
from rmrl.offline.identity import reward_digests
from rmrl.offline.job import Job
from rmrl.offline.open_scorer import open_scorer, token_counter
from rmrl.offline.progress import counting
from rmrl.offline.response_rows import response_rows
from rmrl.offline.score_columns import score_table
from rmrl.offline.summary import Summary
from rmrl.rewards.session.scorer import Scorer
from rmrl.signals import install, signal_handlers

_CPUS_PER_ACTOR = 1


def score_on_cluster(job: Job) -> None:
    """Score the remaining rows with Ray Data. Raises the errors of `Scorer.score`, ConfigError
    where a node has other rewards or none has room for an actor, InfrastructureError where Ray
    cannot finish."""
    from rmrl.cluster.ray_data import cluster_actors, stream  # they import Ray
    from rmrl.cluster.session import ray_session

    checked = job.checked
    config = checked.config
    workers = config.reward.rule_workers or _CPUS_PER_ACTOR
    reward = dataclasses.replace(config.reward, rule_workers=workers)
    # An actor tries no rows by itself, and its engines are processes of its machine, which join no
    # cluster.
    data = dataclasses.replace(config.data, files=None)
    arguments = (
        dataclasses.replace(
            config, reward=reward, data=data, out=None, shard=None, ray_kwargs=ClusterConfig()
        ),
        tuple(map(str, checked.files)),
        reward_digests(checked.specs),
    )
    gpus = float(checked.device == "cuda" and bool(checked.engines))
    handlers = signal_handlers()
    try:
        with (
            ray_session(config.ray_kwargs.ray_init, processes=1),
            counting(job.survey.responses, done=job.responses_done) as update,
        ):
            install(handlers)  # Ray handles SIGTERM when it starts
            room = cluster_actors(cpus=workers, gpus=gpus)
            if not room:
                raise _no_room(workers, gpus)
            results = stream(
                readers_of(job),
                PieceScorer,
                arguments,
                workers=config.score.actors or room,
                cpus=workers,
                gpus=gpus,
            )
            since = time.monotonic()
            for result in results:
                now = time.monotonic()
                job.summary.seconds += now - since
                since = now
                summary = Summary.from_json(json.loads(result["summary"]))
                job.add_table(table_of(result["scores"]), summary, {})
                update(job.responses_done)
    except BaseException:
        # If the disk is the cause of the end, the first error is reported.
        with suppress(DataError):
            job.close_part()
        raise
    job.close_part()


def rows_of_a_piece(survey: Survey, batch_size: int) -> int:
    """Return how many rows hold `batch_size` responses on average; 1 or more."""
    return max(1, batch_size * survey.rows // survey.responses)


def _no_room(cpus: float, gpus: float) -> ConfigError:
    """Return the error for a cluster whose nodes are all too small for an actor."""
    needs = f"{cpus:g} CPUs and a GPU" if gpus else f"{cpus:g} CPUs"
    return ConfigError(
        f"score.engine=ray_data: an actor needs {needs} on one node (reward.rule_workers), and no"
        " node of the Ray cluster has them: give fewer reward.rule_workers, start larger nodes, or"
        " use score.engine=local"
    )


def readers_of(job: Job) -> list[Any]:
    """Return a reader per file with rows that are not scored yet."""
    readers: list[Any] = []
    rows = rows_of_a_piece(job.survey, job.checked.config.data.batch_size)
    first = 0
    for position, path in enumerate(job.checked.files):
        count = job.survey.rows_of_files[position]
        mask = job.survey.masks[position]
        places = np.arange(count) if mask is None else np.flatnonzero(mask)
        done = min(max(job.rows_done - first, 0), count)
        if done < count:
            wanted_N = np.zeros(int(places[-1]) + 1, dtype=bool)
            wanted_N[places[done:]] = True
            reader = _FileReader(
                path=path,
                file=position,
                first=first + done,
                wanted_N=wanted_N,
                rows=rows,
            )
            readers.append(reader)
        first += count
    return readers


@dataclass(frozen=True, slots=True, kw_only=True)
class _FileReader:
    """The rows to one file's score."""

    path: Path
    file: int
    first: int
    wanted_N: np.ndarray
    rows: int

    def __call__(self) -> Iterator[Mapping[str, Any]]:
        """Yield pieces as records."""
        options: dict[str, Any] = {"file": self.file, "first": self.first, "rows": self.rows}
        for piece in pieces(self.path, wanted_N=self.wanted_N, **options):
            yield dataclasses.asdict(piece)


class PieceScorer:
    """Scores pieces in its own process, with its own engines and workers."""

    def __init__(
        self, config: ScoreConfig, files: Sequence[str], digests: Mapping[str, str]
    ) -> None:
        """`digests`: for the rewards as the driver has them. Raises ConfigError where this node has
        others."""
        os.environ.pop("RAY_ADDRESS", None)
        self._checked = check_scoring(
            config,
            shipped_functions=shipped("reward_functions"),
            needs_out=False,
            needs_files=False,
        )
        _require_same(self._checked, digests)
        self._reader = ResponseReader(self._checked.config.data, token_counter(self._checked))
        self._paths = list(map(Path, files))
        self._labels = file_labels(self._paths)
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self._scorer: Scorer | None = None

    def __call__(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return a piece's scores, and their summary."""
        return self._runner.run(self._score(Piece(**record)))

    async def _score(self, piece: Piece) -> dict[str, Any]:
        if self._scorer is None:
            self._scorer = await self._stack.enter_async_context(open_scorer(self._checked))
        path = self._paths[piece.file]
        raw_rows = rows_of(piece, path, self._labels[piece.file])
        numbers = range(piece.first, piece.first + len(piece.places))
        rows = list(self._reader.answered(raw_rows, numbers=numbers))
        rewards = await self._scorer.score(response_rows(rows), within_budget=False)
        summary = Summary()
        summary.add(rewards, busy_s=self._scorer.take_seconds())
        table = score_table(rows, rewards, further=self._checked.config.columns)
        return {"scores": ipc_bytes(table), "summary": json.dumps(summary.to_json())}


def _require_same(checked: CheckedScoring, digests: Mapping[str, str]) -> None:
    different = [
        name for name, digest in reward_digests(checked.specs).items() if digests[name] != digest
    ]
    if different:
        raise ConfigError(
            f"the code or the model of {', '.join(different)} is another one on a node of the"
            " cluster: make reward functions and checkpoints the same on all nodes, or put them on"
            " a disk that all of them share"
        )
