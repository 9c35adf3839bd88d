"""score.engine=ray_data: how actors are placed, and what is refused before a cluster is asked."""

from __future__ import annotations

import signal

import pytest
from ray.data import DataContext

from rmrl.cluster.ray_data import actors_that_fit, execution_options
from rmrl.errors import ConfigError
from rmrl.offline.job import claim
from rmrl.offline.on_cluster import readers_of, rows_of_a_piece
from rmrl.signals import install, signal_handlers
from tests.offline.conftest import Bench


def test_actors_are_counted_node_by_node() -> None:
    nodes = [
        {"Alive": True, "Resources": {"CPU": 7.0, "GPU": 1.0}},
        {"Alive": True, "Resources": {"CPU": 3.0, "GPU": 4.0}},
        {"Alive": True, "Resources": {"CPU": 16.0}},
        {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}},
    ]
    # of 2 CPUs: 3 + 1 + 8; with a GPU: 1 + 1 + 0
    assert actors_that_fit(nodes, cpus=2) == 12
    assert actors_that_fit(nodes, cpus=2, gpus=1.0) == 2
    # 26 CPUs in all, but no node has 17
    assert actors_that_fit(nodes, cpus=17) == 0


def test_pieces_hold_a_batch_of_responses(bench: Bench) -> None:
    files = f"data.files={bench.rows(['a'] * 8, ['b'] * 4)}"
    surveyed = bench.checked(files, f"out={bench.folder}/s.jsonl").survey
    assert surveyed is not None
    # 6 responses per row on average
    assert rows_of_a_piece(surveyed, 60) == 10
    assert rows_of_a_piece(surveyed, 5) == 1


def test_the_drawn_rows_of_each_file_are_sent(bench: Bench) -> None:
    files = [bench.rows(*"a" * 4, name="a.jsonl"), bench.rows(*"b" * 16, name="b.jsonl")]
    checked = bench.checked(
        f"data.files=[{files[0]},{files[1]}]", f"out={bench.folder}/s.jsonl", "data.sample=5"
    )
    places: list[tuple[int, int]] = []
    with claim(checked) as job:
        for reader in readers_of(job):
            for piece in reader():
                for place in piece["places"]:
                    places.append((piece["file"], place))
    # random.Random(1).sample(range(20), 5): 2, 3, 4, 8 and 18
    assert places == [(0, 2), (0, 3), (1, 0), (1, 4), (1, 14)]


def test_ray_data_waits_for_a_slow_batch() -> None:
    with execution_options():
        assert getattr(DataContext.get_current(), "execution_no_progress_timeout_s", -1) == -1


def test_handlers_of_signals_come_back() -> None:
    before = signal_handlers()
    try:
        signal.signal(signal.SIGTERM, lambda *_: None)
        install(before)
        assert signal.getsignal(signal.SIGTERM) is before[signal.SIGTERM]
    finally:
        install(before)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (("reward.transforms.length={kind: standardize, by: group}",), "compared with others"),
        (("reward.transforms.length={kind: standardize, by: running}",), "compared with others"),
        (("reward.combine=lexicographic",), "compared with others"),
        (
            (
                "reward.models=[judge]",
                "reward.specs.judge.path={folder}/judge-model",
                "reward.specs.judge.engine.name=vllm",
            ),
            r"reward 'judge' runs on the engine vllm, .*score\.engine=local",
        ),
        (("score.actors=0",), r"score\.actors=0: must be greater than 0"),
    ],
)
def test_what_the_cluster_cannot_score_is_a_sentence(
    bench: Bench, keys: tuple[str, ...], words: str
) -> None:
    data = bench.rows("a")
    out = f"out={bench.folder}/s.jsonl"
    given = [key.format(folder=bench.folder) if "{folder}" in key else key for key in keys]
    with pytest.raises(ConfigError, match=words):
        bench.checked(f"data.files={data}", out, "score.engine=ray_data", *given)
