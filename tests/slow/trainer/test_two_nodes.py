"""Training across a real cluster of two Ray nodes (two raylets on this machine): ranks and engines
on both, weights to both."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster_of_two import cluster_of_two
from tests.trainer.job import Job, left_in_shared_memory, shared_memory

pytestmark = pytest.mark.alone

TWO_NODES = {
    "trainer.nnodes": 2,
    "trainer.n_gpus_per_node": 1,
    "actor_rollout_ref.rollout.data_parallel_size": 2,
    "trainer.total_training_steps": 2,
    "actor_rollout_ref.actor.ppo_mini_batch_size": (
        2
    ),  # two updates a step need old log-probabilities, which are compared below
}


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[str]:
    """Address of a cluster with two CPU slots on each of its two nodes."""
    with cluster_of_two(num_cpus=2, object_store_memory=200 * 2**20) as address:
        yield address


@pytest.fixture(scope="module")
def job(
    tmp_path_factory: pytest.TempPathFactory,
    tiny_llama: Path,
    tiny_reward_llama: Path,
    two_nodes: str,
) -> Job:
    overrides: dict[str, object] = {**TWO_NODES, "ray_kwargs.ray_init.address": two_nodes}
    return Job(
        folder=tmp_path_factory.mktemp("nodes"),
        policy=tiny_llama,
        scalar=tiny_reward_llama,
        overrides=overrides,
    ).prepare()


@pytest.fixture(scope="module")
def before() -> set[str]:
    """Names in shared memory before the run."""
    return shared_memory()


@pytest.fixture(scope="module")
def printed(job: Job, before: set[str]) -> str:
    code, text = job.run("run")
    assert code == 0, text
    return text


def processes_by_node(printed: str) -> list[set[str]]:
    return [set(line.split(", ")) for line in re.findall(r"node \S+ \(\w+\): (.*)", printed)]


def test_every_node_trains_and_samples(printed: str) -> None:
    assert processes_by_node(printed) == [{"train-0", "rollout-0"}, {"train-1", "rollout-1"}]


def test_both_engines_sample_with_the_published_weights(job: Job, printed: str) -> None:
    """An engine with older weights would disagree with training about the log-probabilities of its
    own samples in step 2."""
    steps = job.lines("run")
    assert [line["step"] for line in steps] == [1, 2]
    assert all(abs(line["policy/rollout_logprob_diff_max"]) < 1e-3 for line in steps)


def test_no_file_is_left_in_shared_memory(printed: str, before: set[str]) -> None:
    assert left_in_shared_memory(before, of="rmrl-weights-") == set()


def test_more_nodes_than_there_are_is_refused_in_one_sentence(job: Job) -> None:
    code, text = job.run("refused", trainer__nnodes=3)
    assert code == 4
    assert re.search(
        r"asks for 3 processes on 3 machine\(s\), 1 on each; the cluster has 2 machine\(s\)", text
    )
