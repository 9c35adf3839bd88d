"""Rewards of tokens from teachers' log-probabilities: on-policy distillation.

    d_t = clip(log p_teacher(y_t | x, y_<t) - log p_policy(y_t | x, y_<t), -c, c)
    r_t = sum over the row's teachers of w * d_t

y is sampled by the policy, so the mean of d_t without the clip estimates the negative reverse KL
divergence per token, KL(policy || teacher), in nats (arXiv:2306.13649, section 3.2; K. Lu,
"On-Policy Distillation", Thinking Machines Lab, 2025, where c is infinite). log p_policy is that of
the policy before the step's updates, the one in the ratios of the losses: of logits / temperature
where the policy samples at a temperature. The teacher's is that at temperature 1, so the policy as
it is sampled approaches the teacher.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rmrl.telemetry.names import score_key
from rmrl.types import Metrics, Ragged, TeacherTokens


def teacher_token_rewards(
    teachers: Sequence[Sequence[TeacherTokens]], old_logprobs: Ragged, mask: Ragged
) -> tuple[Ragged, Metrics]:
    """Return token rewards in float32, lengths T, 0 on rows without a teacher, and for each teacher
    `score/<name>/log_ratio`, the mean of d_t over its sampled tokens before the clip, and
    `score/<name>/clipped`, the share of them that the clip changes."""
    rewards: list[np.ndarray] = []
    ratios: dict[str, list[np.ndarray]] = {}
    clipped: dict[str, int] = {}
    streams = (old_logprobs.rows(), mask.rows())
    for row, old, sampled in zip(teachers, *streams, strict=True):
        reward = np.zeros(len(old))
        for teacher in row:
            assert len(teacher.logprobs) == len(old), (
                f"teacher '{teacher.name}' rated {len(teacher.logprobs)} tokens of {len(old)}"
            )
            ratio = np.where(sampled > 0, teacher.logprobs.astype(np.float64) - old, 0.0)
            reward += teacher.weight * ratio.clip(-teacher.clip, teacher.clip)
            ratios.setdefault(teacher.name, []).append(ratio[sampled > 0])
            outside = int((np.abs(ratio) > teacher.clip).sum())
            clipped[teacher.name] = clipped.get(teacher.name, 0) + outside
        rewards.append(reward)
    metrics: Metrics = {}
    for name, rows in ratios.items():
        values = np.concatenate(rows)
        if len(values):
            metrics[score_key(name, "log_ratio")] = float(values.mean())
            metrics[score_key(name, "clipped")] = clipped[name] / len(values)
    return Ragged.of(rewards, np.float32), metrics
