"""Kinds of rewards. To add a kind: a folder with a class that extends `Kind`, and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmrl.registry import Registry

if TYPE_CHECKING:
    from rmrl.rewards.kinds.kind import Kind

REWARD_KINDS: Registry[type[Kind]] = Registry(
    "kind",
    {
        "rule": "rmrl.rewards.kinds.rule.reward:RuleReward",
        "generative": "rmrl.rewards.kinds.generative.reward:GenerativeReward",
        "rubric": "rmrl.rewards.kinds.rubric.reward:RubricReward",
        "bradley_terry": "rmrl.rewards.kinds.bradley_terry.reward:BradleyTerryReward",
        "critique": "rmrl.rewards.kinds.critique.reward:CritiqueReward",
        "process": "rmrl.rewards.kinds.process.reward:ProcessReward",
        "teacher": "rmrl.rewards.kinds.teacher.reward:TeacherReward",
        "similarity": "rmrl.rewards.kinds.similarity.reward:SimilarityReward",
        "code": "rmrl.rewards.kinds.code.reward:CodeReward",
        "remote": "rmrl.rewards.kinds.remote.reward:RemoteReward",
        "group": "rmrl.rewards.kinds.group.reward:GroupReward",
        "ensemble": "rmrl.rewards.kinds.ensemble.reward:Ensemble",
        "environment": "rmrl.rewards.kinds.environment.reward:EnvironmentReward",
    },
)
