"""Kinds of rewards. To add a kind: one file with a `from_spec(spec, context)` class method, and one
line here."""

from __future__ import annotations

from typing import Any

from rmrl.registry import Registry

REWARD_KINDS: Registry[Any] = Registry(
    "kind",
    {
        "rule": "rmrl.rewards.kinds.rule:RuleReward",
        "generative": "rmrl.rewards.kinds.generative:GenerativeReward",
        "rubric": "rmrl.rewards.kinds.rubric:RubricReward",
        "bradley_terry": "rmrl.rewards.kinds.bradley_terry:BradleyTerryReward",
        "critique": "rmrl.rewards.kinds.critique:CritiqueReward",
        "process": "rmrl.rewards.kinds.process:ProcessReward",
        "teacher": "rmrl.rewards.kinds.teacher:TeacherReward",
        "similarity": "rmrl.rewards.kinds.similarity:SimilarityReward",
        "code": "rmrl.rewards.kinds.code:CodeReward",
        "remote": "rmrl.rewards.kinds.remote:RemoteReward",
        "group": "rmrl.rewards.kinds.group:GroupReward",
        "ensemble": "rmrl.rewards.kinds.ensemble:Ensemble",
    },
)
