"""Start of the environment that plays the responses."""

from __future__ import annotations

from contextlib import AsyncExitStack

from rmrl.environments.source import VerifiersSource
from rmrl.models.checkpoint_inspect import local_checkpoint
from rmrl.trainer.check_run import Checked
from rmrl.trainer.rollouts import RolloutPool

LOG_FILE = "environment.log"
"""What the environment prints, in the run's folder."""


async def add_environment(pool: RolloutPool, checked: Checked, *, max_model_len: int) -> None:
    """Let the environment play the pool's responses. Closes the pool where it cannot be opened,
    and raises ConfigError."""
    model = checked.config.actor_rollout_ref.model
    async with AsyncExitStack() as starting:
        starting.push_async_callback(pool.close)
        pool.source = VerifiersSource(
            checked.config.actor_rollout_ref.rollout.verifiers,
            model=str(model.tokenizer_path or local_checkpoint(str(model.path))),
            max_model_len=max_model_len,
            max_response_length=checked.config.data.max_response_length,
            log=checked.out_dir / LOG_FILE,
        )
        await pool.source.start()
        starting.pop_all()
