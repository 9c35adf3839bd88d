"""Critiques on the training rows, written by rmrl's own engines before the first step.

<out>/critiques.sqlite    verdict cache: a run that is broken off asks for the missing ones alone
<out>/critiques.json      which rows have a response without a critique: a run that goes on leaves
                          out the same rows, though the critic may have written more by now
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from rmrl.files import write_whole
from rmrl.inference.reward_engine_base import Runner
from rmrl.offline.rewards import AsyncRewards
from rmrl.reward_training.check_reward_training import CheckedRewardTraining, with_split
from rmrl.reward_training.example import Example
from rmrl.reward_training.readings.critique_turn import CritiqueTurn, talk_of
from rmrl.rewards.kinds.bradley_terry.reward import BradleyTerryReward
from rmrl.rewards.kinds.critique.reward import Critique, CritiqueReward
from rmrl.rewards.kinds.critique.scorer_reads import scorer_reads
from rmrl.rewards.kinds.judge.case import Case
from rmrl.rewards.kinds.shared.rendering import fill_in, readable
from rmrl.types import ScoreItem, ScoreResult

_log = logging.getLogger(__name__)

CACHE = "critiques.sqlite"
_RECORD = "critiques.json"
_CRITIC = "critic"
_WRITER = "rmrl.reward_training.critics:CritiqueWriter"


class CritiqueWriter(CritiqueReward):
    """The critic alone. `raw_text` is the critique, and the score its number of words."""

    roles: ClassVar[Mapping[str, Runner]] = {"main": "generate"}

    @classmethod
    def check_options(cls, options: CritiqueReward.Options, where: str) -> list[str]:
        """Nothing: it has no scorer."""
        del options, where
        return []

    async def score(self, items: Sequence[ScoreItem]) -> list[ScoreResult]:
        """Return each response's first critique, or why there is none."""
        rendered, samples = await self._judge.answers(items, self._inputs())
        rows, inputs = readable(items, rendered)
        results: list[ScoreResult] = []
        for item, outputs, read in zip(rows, samples, inputs, strict=True):
            critique = Critique.of(Case.of(item, read).sample(outputs[0]))
            count = float(len(critique.text.split()))
            written = ScoreResult(value=count, raw_text=critique.text)
            results.append(critique.failure or written)
        return fill_in(rendered, results)


class GivenCritiques(BradleyTerryReward):
    """A scalar model behind critiques that the rows bring: extra_info.critiques, {conversation:
    critique}."""

    def _conversations(self, items: Sequence[ScoreItem], tokenizer: Any, neutral: Any) -> list[Any]:
        critiques = [neutral(item.extra_info["critiques"][talk_of(item)]) for item in items]
        responses = [neutral(item.response) for item in items]
        return scorer_reads(items, responses, critiques, tokenizer)


async def with_critiques(checked: CheckedRewardTraining) -> CheckedRewardTraining:
    """Return the work with a critique for each response, where its objective reads them. Rows in
    which the critic has none for some response are left out and counted."""
    parts = checked.split
    if not isinstance(checked.objective.reading, CritiqueTurn):
        return checked
    if all(example.critiques for example in parts.train):
        return checked
    examples = dict(enumerate([*parts.train, *parts.held_out]))
    total = len(examples)
    record = checked.out / _RECORD
    rows = parts.digest
    if record.exists():
        earlier = json.loads(record.read_text(encoding="utf-8"))
        if earlier["rows"] == rows:
            for number in earlier["left_out"]:
                del examples[number]
    _log.info(
        f"writing critiques of {sum(len(each.responses) for each in examples.values())} responses"
    )
    texts = await _written(checked, list(examples.values()))
    known = {
        number: replace(each, critiques=tuple(own))
        for (number, each), own in zip(examples.items(), texts, strict=True)
        if all(own)
    }
    left_out = sorted(set(range(total)) - known.keys())
    split = replace(
        parts,
        train=[each for number, each in known.items() if number < len(parts.train)],
        held_out=[each for number, each in known.items() if number >= len(parts.train)],
        without_critique=len(left_out),
    )
    work = await asyncio.to_thread(with_split, checked, split)
    write_whole(record, json.dumps({"rows": rows, "left_out": left_out}) + "\n")
    return work


async def _written(
    checked: CheckedRewardTraining, examples: Sequence[Example]
) -> list[list[str | None]]:
    critic = {"kind": _WRITER, **checked.prompt_entries, **checked.config.loss.critic}
    config = {
        "reward": {
            "models": [_CRITIC],
            "specs": {_CRITIC: critic},
            "cache": {"path": str(checked.out / CACHE)},
            "max_missing": 1.0,
        },
        "trainer": {"device": checked.device},
        "columns": ["raw"],
    }
    rewards = await asyncio.to_thread(AsyncRewards, config)
    async with rewards:
        prompts = [example.plain_prompt for example in examples]
        table = await rewards.score(prompts, [each.plain_responses for each in examples])
    scores, texts = table[f"score_{_CRITIC}"], table[f"raw_{_CRITIC}"]
    return [
        [text if score is not None else None for score, text in zip(*row, strict=True)]
        for row in zip(scores, texts, strict=True)
    ]
