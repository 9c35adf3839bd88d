"""A trained model's card, README.md in its folder, as model hubs show it."""

from __future__ import annotations

import re
from typing import Any

import yaml

from rmrl import __version__
from rmrl.data.surrogates import escaped
from rmrl.evaluation.page import Page, markdown
from rmrl.files import write_whole
from rmrl.reward_training.check_reward_training import CheckedRewardTraining
from rmrl.reward_training.results import report_tables, reward_section
from rmrl.reward_training.training import BEST
from rmrl.tokenizer import policy_tokenizer

_TEMPLATED = re.compile(r"text = tokenizer\.apply_chat_template.*")


def write_card(checked: CheckedRewardTraining, report: dict[str, Any]) -> None:
    """Write the card: what the model is, how to use it, its figures beside the baselines, the data
    with what was left out, and how the engines compare."""
    base = str(checked.config.model.path)
    data = report["data"]
    reading = checked.objective.reading
    head = {
        "library_name": "transformers",
        "pipeline_tag": reading.pipeline,
        "base_model": base,
        "tags": ["reward-model", "rmrl", checked.config.objective],
    }
    section = yaml.safe_dump({"reward": reward_section(checked)}, sort_keys=False)
    left_out = (
        f"{len(data['train']['dropped'])} of {data['train']['rows']} training rows were left out"
        f" and {len(data['train']['cut'])} cut, because a text had more than {data['max_length']}"
        f" tokens; {data['excluded']} because their prompt stands in an evaluation set."
    )
    usage = reading.usage
    if not policy_tokenizer(checked.config.model).chat_template:
        usage = _TEMPLATED.sub("# `text`: what `rmrl check` shows for the reward below", usage)
    page = Page(
        title=f"Reward model on {base}",
        tables=report_tables(checked, report),
        texts=[
            ("In transformers", [(f"trained by rmrl {__version__}", usage)]),
            ("In rmrl", [("a section of rewards", section)]),
            ("Rows that were left out", [("", left_out)]),
            ("Settings", [("", yaml.safe_dump(_settings(checked), sort_keys=False))]),
        ],
    )
    text = f"---\n{yaml.safe_dump(head, sort_keys=False)}---\n\n{markdown(page)}"
    write_whole(checked.out / BEST / "README.md", escaped(text))


def _settings(checked: CheckedRewardTraining) -> dict[str, Any]:
    config = checked.config
    return {
        "rows of a step": config.data.train_batch_size,
        "steps": checked.total_steps,
        "learning rate": config.optim.lr,
        "schedule": config.optim.lr_scheduler_type,
        "LoRA rank": config.model.lora_rank,
        "seed": config.trainer.seed,
    }
