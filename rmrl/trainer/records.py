"""Records that a run writes about each of its steps."""

from __future__ import annotations

import dataclasses

from rmrl.telemetry.clock import StepClock
from rmrl.telemetry.hints import HintFile
from rmrl.telemetry.names import score_metrics
from rmrl.telemetry.sample_table import sample_table
from rmrl.telemetry.sample_text import sample_text
from rmrl.telemetry.sinks import Sinks
from rmrl.telemetry.transcripts import SampleWriter
from rmrl.telemetry.turn_metrics import turn_metrics
from rmrl.trainer.batches import ScoredBatch, advantage_per_row
from rmrl.trainer.scored_rollouts import ScoredRollouts
from rmrl.types import Metrics


@dataclasses.dataclass(slots=True, kw_only=True)
class Telemetry:
    """Sinks of metrics, and files of samples and hints. Opened after the resume step is known."""

    sinks: Sinks
    samples: SampleWriter
    val_samples: SampleWriter
    hints: HintFile

    def log_step(
        self,
        step: int,
        scored: ScoredRollouts,
        batch: ScoredBatch,
        metrics: Metrics,
        clock: StepClock,
    ) -> None:
        """Write the samples of a finished step with their advantages, and log its metrics.

        `metrics`: those of update, validation and progress; those of scores, lengths and time are
        added here.
        """
        responses = scored.rollouts.responses
        rewards = scored.rewards
        lengths = [response.sampled for response in responses]
        truncated = [response.finish_reason == "length" for response in responses]
        prompt_tokens = sum(len(response.prompt.token_ids) for response in responses)
        self.samples.write(
            step, responses, rewards, advantages_B=advantage_per_row(batch, len(lengths))
        )
        self.sinks.log(
            step,
            {
                **score_metrics(rewards.scores, rewards, lengths, truncated=truncated),
                **turn_metrics(responses),
                **scored.metrics,
                **metrics,
                **clock.metrics(sum(lengths) + prompt_tokens),
            },
        )

    def show_samples(self, step: int, scored: ScoredRollouts) -> None:
        """Show one scored sample as text and some of the step as a table, in the sinks that have
        either."""
        responses = scored.rollouts.responses
        # The response that is shown follows from the step.
        row = (step * 7919) % len(responses)
        self.sinks.text(step, sample_text(step, responses[row], scored.rewards, row=row))
        self.sinks.table(step, sample_table(step, responses, scored.rewards, first=row))

    def flush(self) -> None:
        """Wait until the samples of every finished step are in their files."""
        self.samples.flush()
        self.val_samples.flush()

    def close(self) -> None:
        self.sinks.close()
        self.samples.close()
        self.val_samples.close()
        self.hints.close()
