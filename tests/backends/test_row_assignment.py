"""Who works on which rows, and who answers for them."""

from __future__ import annotations

import pytest

from rmrl.backends.row_assignment import RowAssignment, row_assignment
from rmrl.config.schema import ActorConfig, FSDPConfig, MegatronConfig
from rmrl.errors import ConfigError
from tests.support import fakes


@pytest.mark.parametrize(
    "strategy", ["fsdp", "fsdp2", fakes.BACKEND, "tests.contracts.toy_parts:Ranked"]
)
def test_sharded_training_gives_every_process_rows_of_its_own(strategy: str):
    made = row_assignment(ActorConfig(strategy=strategy), 3, section="actor_rollout_ref.actor")
    assert made == RowAssignment(share_of=(0, 1, 2), output_ranks=(0, 1, 2))


@pytest.mark.parametrize("strategy", ["fsdp", "fsdp2"])
def test_neighbours_share_rows_and_the_first_answers(strategy: str):
    pairs = ActorConfig(strategy=strategy, fsdp_config=FSDPConfig(ulysses_sequence_parallel_size=2))
    assignment = row_assignment(pairs, 6, section="actor_rollout_ref.actor")
    assert assignment == RowAssignment(share_of=(0, 0, 1, 1, 2, 2), output_ranks=(0, 2, 4))
    with pytest.raises(
        ConfigError, match=r"critic\.fsdp_config\.ulysses_.*_size=2 does not divide the 3 .* of 3$"
    ):
        row_assignment(pairs, 3, section="critic")


def actor(**sizes: int) -> ActorConfig:
    return ActorConfig(strategy="megatron", megatron=MegatronConfig(**sizes))


def test_tensor_parallel_neighbours_share_rows_and_the_first_answers():
    made = row_assignment(actor(tensor_model_parallel_size=2), 6, section="actor_rollout_ref.actor")
    assert made == RowAssignment(share_of=(0, 0, 1, 1, 2, 2), output_ranks=(0, 2, 4))


def test_the_last_stage_of_a_pipeline_answers():
    """Stages are far apart: ranks 0 and 1 are first stages, 2 and 3 last ones."""
    made = row_assignment(
        actor(pipeline_model_parallel_size=2), 4, section="actor_rollout_ref.actor"
    )
    assert made == RowAssignment(share_of=(0, 1, 0, 1), output_ranks=(2, 3))


def test_all_axes_together():
    """Ranks are tensor + 2 (context + 2 (share + 2 stage)): share 1 ends at tensor 0, context 0,
    stage 1, which is rank 12."""
    made = row_assignment(
        actor(
            tensor_model_parallel_size=2, context_parallel_size=2, pipeline_model_parallel_size=2
        ),
        16,
        section="actor_rollout_ref.actor",
    )
    assert made.share_of == (0,) * 4 + (1,) * 4 + (0,) * 4 + (1,) * 4
    assert made.output_ranks == (8, 12)
    assert all(made.share_of[rank] == share for share, rank in enumerate(made.output_ranks))


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(
        ConfigError,
        match=r"critic\.megatron: tensor_model_parallel_size=3 .* = 3 does not divide the 4",
    ):
        row_assignment(actor(tensor_model_parallel_size=3), 4, section="critic")
