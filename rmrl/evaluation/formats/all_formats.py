"""The formats that `rmrl eval` reads."""

from __future__ import annotations

from rmrl.evaluation.formats.form import Format
from rmrl.registry import Registry

FORMATS: Registry[type[Format]] = Registry(
    "eval.format",
    {
        "pairs": "rmrl.evaluation.formats.pairs:Pairs",
        "best_of_n": "rmrl.evaluation.formats.best_of_n:BestOfN",
        "absolute": "rmrl.evaluation.formats.absolute:Absolute",
        "traces": "rmrl.evaluation.formats.traces:Traces",
        "rewardbench": "rmrl.evaluation.formats.rewardbench:RewardBench",
        "rewardbench2": "rmrl.evaluation.formats.rewardbench2:RewardBench2",
        "rm_bench": "rmrl.evaluation.formats.rm_bench:RMBench",
        "judgebench": "rmrl.evaluation.formats.judgebench:JudgeBench",
        "llmbar": "rmrl.evaluation.formats.llmbar:LLMBar",
        "pandalm": "rmrl.evaluation.formats.pandalm:PandaLM",
        "rmb": "rmrl.evaluation.formats.rmb:RMB",
        "ppe": "rmrl.evaluation.formats.ppe:PPE",
        "hhh": "rmrl.evaluation.formats.hhh:HHH",
        "processbench": "rmrl.evaluation.formats.processbench:ProcessBench",
    },
)
