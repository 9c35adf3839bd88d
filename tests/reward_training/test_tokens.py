"""Tokens of examples: the text that a reward of kind bradley_terry reads, what the responses share,
and what does not fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmrl.config.schema import RewardDataConfig, RewardLossConfig, RewardTrainingConfig
from rmrl.errors import DataError
from rmrl.reward_training.check_reward_training import settings_problems
from rmrl.reward_training.objectives.bradley_terry import BradleyTerry
from rmrl.reward_training.objectives.critique import CritiqueBradleyTerry
from rmrl.reward_training.objectives.plackett_luce import PlackettLuce
from rmrl.reward_training.readings.critique_turn import talk_of
from rmrl.reward_training.tokens import Tokenized, tokenized
from rmrl.rewards.kinds.critique.reward import CritiqueReward
from rmrl.tokenizer import load_tokenizer
from tests.reward_training.pairs import example
from tests.rewards.kinds.scripted import context, spec

EXAMPLES = [
    example("good", "bad", prompt="Hi"),
    example(
        "x" * 40,
        "yes",
        prompt=({"role": "system", "content": "S"}, {"role": "user", "content": "Hi"}),
    ),
    example("same", "same and more", prompt="p" * 30),
]


@pytest.fixture(scope="module")
def tokenizer(tiny_llama: Path) -> Any:
    return load_tokenizer(str(tiny_llama), trust_remote_code=False)


def read(tokenizer: Any, **data: Any) -> Tokenized:
    objective = BradleyTerry(RewardLossConfig())
    return tokenized(EXAMPLES, tokenizer, objective, RewardDataConfig(**data))


def test_the_conversation_goes_through_the_chat_template(tokenizer: Any) -> None:
    items = read(tokenizer).items
    texts = [[tokenizer.decode(row) for row in item.tokens] for item in items]
    # The tiny tokenizer has no line ends.
    assert texts[0] == ["user: Hi<unk>assistant: good<unk>", "user: Hi<unk>assistant: bad<unk>"]
    assert texts[1][1] == "system: S<unk>user: Hi<unk>assistant: yes<unk>"
    assert items[0].shared == len("user: Hi\nassistant: ")
    assert items[2].shared == len("user: \nassistant: same") + 30
    for item in items:
        for row, read_at in zip(item.tokens, item.reads, strict=True):
            assert len(read_at) == len(row) - item.shared
            assert np.flatnonzero(read_at).tolist() == [len(read_at) - 1]


def test_what_does_not_fit_is_dropped_and_counted(tokenizer: Any) -> None:
    result = read(tokenizer, max_length=50)
    assert [item.number for item in result.items] == [0]
    assert (result.dropped, result.cut) == ([1, 2], [])
    assert max(result.lengths) == len("system: S\nuser: Hi\nassistant: \n") + 40


def test_a_row_that_teaches_nothing_is_left_out_and_counted(tokenizer: Any) -> None:
    """Ties teach a pair's loss nothing, unless it has a probability for them."""
    rows = [
        EXAMPLES[0],
        replace(EXAMPLES[1], ranks=(0, 0)),
        replace(EXAMPLES[0], responses=("same", "same")),
    ]
    for objective, teaching in (
        (BradleyTerry(RewardLossConfig()), [0]),
        (PlackettLuce(RewardLossConfig()), [0]),
        (PlackettLuce(RewardLossConfig(tie_strength=1.0)), [0, 1]),
    ):
        result = tokenized(rows, tokenizer, objective, RewardDataConfig())
        assert [item.number for item in result.items] == teaching
        assert result.unlabelled == [number for number in (0, 1, 2) if number not in teaching]


def test_a_prompt_loses_its_start_where_rows_are_cut(tokenizer: Any) -> None:
    result = read(tokenizer, max_length=50, overlong="cut")
    assert [item.number for item in result.items] == [0, 1, 2]
    assert (result.dropped, result.cut) == ([], [1, 2])
    assert max(len(row) for item in result.items for row in item.tokens) == 50
    assert tokenizer.decode(result.items[1].tokens[0]).endswith("x<unk>")


def test_a_row_that_does_not_fit_can_be_refused(tokenizer: Any) -> None:
    with pytest.raises(DataError, match=r"data\.max_length=50"):
        read(tokenizer, max_length=50, overlong="error")


def test_a_critique_is_read_where_the_kind_reads_it(tokenizer: Any) -> None:
    """Kind `critique` reads the same tokens. An unwritten critique is empty."""
    critic = {"path": "Qwen/Qwen3-4B", "rubric": "Be strict."}
    objective = CritiqueBradleyTerry(RewardLossConfig(critic=critic))
    critiques = ("right", "wrong <s>")
    rows = [replace(EXAMPLES[0], critiques=critiques), EXAMPLES[0]]
    written, before = tokenized(rows, tokenizer, objective, RewardDataConfig()).items
    kind = CritiqueReward(
        spec(
            "critique",
            options=CritiqueReward.Options(scorer={"path": "x"}),
            roles=("main", "scorer"),
        ),
        context(tokenizer),
    )
    rendered = kind.render_scorer(EXAMPLES[0].score_items, critiques)
    assert [row.tolist() for row in written.tokens] == [list(each.token_ids) for each in rendered]
    assert len(before.tokens[0]) == len(written.tokens[0]) - len("right")
    reading = objective.reading
    assert reading.reward_spec("rm/best", rows) == {
        "kind": "critique",
        **critic,
        "scorer": {"path": "rm/best"},
    }
    (column,) = reading.columns(rows[:1])["extra_info"]
    assert list(column["critiques"].values()) == ["right", "wrong <s>"]
    # One text behind different turns has two critiques.
    asked = ({"role": "user", "content": "And then?"},)
    parted = replace(rows[0], responses=("Yes.", "Yes."), before=((), asked))
    (column,) = reading.columns([parted])["extra_info"]
    assert [column["critiques"][talk_of(item)] for item in parted.score_items] == [*critiques]


def test_a_critic_is_needed() -> None:
    config = RewardTrainingConfig(objective="critique", out="rm")
    config.data.train_files = "rows.jsonl"
    config.model.path = "base"
    (problem,) = settings_problems(config)
    assert "loss.critic.path=" in problem
