"""The training loop, on one screen. Everything periodic is `*_if_due`; sleep, wake and offload are
context managers; set-up is build.py."""

from __future__ import annotations

from contextlib import aclosing

from rmrl.trainer.batches import keep_informative
from rmrl.trainer.failure import saved_when_it_fails
from rmrl.trainer.run import Run


async def train(run: Run) -> None:
    """prompts -> responses -> scores -> advantages -> update, until the last step or the user's
    interrupt."""
    async with saved_when_it_fails(run):
        await run.resume()
        await run.publish_weights()
        await run.evaluate_before_training()
        async with aclosing(run.scored_rollouts()) as batches:  # on-policy, or sampled ahead
            async for scored in batches:
                batch = keep_informative(scored)
                async with run.measures.profiled_if_due(run.step + 1):
                    async with run.training("logprobs"):
                        batch = await run.add_logprobs(batch)
                    batch, metrics = run.add_advantages(batch)
                    async with run.training("update"):
                        metrics |= await run.update(batch)
                    run.step += 1
                    await run.write_models_if_due()
                    await run.publish_weights()
                await run.evaluate_if_due(metrics)
                run.record(scored, batch, metrics)
                await run.checkpoint_if_due()
        await run.finish()
