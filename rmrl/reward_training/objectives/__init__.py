"""Objectives: what the model's outputs are trained to. To add one: a file with an `Objective`,
and its line in this table."""

from __future__ import annotations

from rmrl.registry import Registry
from rmrl.reward_training.objectives.objective import Objective

OBJECTIVES: Registry[type[Objective]] = Registry(
    "objective",
    {
        "attributes": "rmrl.reward_training.objectives.attributes:AttributeRegression",
        "bradley_terry": "rmrl.reward_training.objectives.bradley_terry:BradleyTerry",
        "critique": "rmrl.reward_training.objectives.critique:CritiqueBradleyTerry",
        "decision": "rmrl.reward_training.objectives.decision:Decision",
        "plackett_luce": "rmrl.reward_training.objectives.plackett_luce:PlackettLuce",
        "process": "rmrl.reward_training.objectives.process:Process",
    },
)
