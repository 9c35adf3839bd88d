from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from rmrl.config.schema import DataConfig
from rmrl.data.dataset import load_prompts
from rmrl.errors import ConfigError, DataError


def words(count: int) -> dict:
    return {"prompt": " ".join(["a"] * count), "reward_model": str(count)}


def load(config: DataConfig, tokenizer, split: str = "train"):
    return load_prompts(config, tokenizer, split=split)


def test_prompts_of_several_files(jsonl, tokenizer, caplog):
    a, b = jsonl([words(1), words(2)], "x/rows.jsonl"), jsonl([words(3)], "y/rows.jsonl")
    prompts = load(DataConfig(train_files=[str(a), str(b)]), tokenizer)
    assert [p.id for p in prompts] == ["x/rows.jsonl:0", "x/rows.jsonl:1", "y/rows.jsonl:0"]
    assert prompts[2].token_ids == (2, 5, 5, 5, 1, 3)
    assert type(prompts[2].token_ids[0]) is int
    assert [p.ground_truth for p in prompts[1:]] == ["2", "3"]
    assert prompts[-1] == prompts[2]
    assert prompts.lengths.tolist() == [4, 5, 6]
    assert caplog.messages == ["data.train_files: 3 prompts, 5 tokens on average, 6 at most"]


def test_one_row(jsonl, tokenizer):
    prompts = load(DataConfig(val_files=str(jsonl([words(1)]))), tokenizer, split="val")
    assert [p.id for p in prompts] == ["rows.jsonl:0"]
    with pytest.raises(IndexError):
        prompts[1]


def test_parquet_written_by_pandas_with_nested_numpy_and_null_columns(tmp_path, tokenizer):
    frame = pd.DataFrame(
        {
            "prompt": [np.array([{"role": "user", "content": "a"}], dtype=object)] * 2,
            "rm_prompt": [None, "told"],
            "rm_prompt_1": [None, None],
            "reward_model": [
                {"style": "rule", "ground_truth": "1"},
                {"style": "rule", "ground_truth": None},
            ],
            "extra_info": [{"v": np.array([1, 2])}, {"v": None}],
        }
    )
    frame.to_parquet(tmp_path / "p.parquet")
    first, second = load(DataConfig(train_files=str(tmp_path / "p.parquet")), tokenizer)
    assert (first.rm_prompts, second.rm_prompts) == ({}, {"": "told"})
    assert (first.ground_truth, second.ground_truth) == ("1", None)
    assert first.extra_info == {"v": [1, 2]}
    assert type(first.extra_info["v"]) is list


def test_filter_keeps_row_numbers_and_says_the_count(jsonl, tokenizer, caplog):
    path = jsonl([words(9), words(1), words(8), words(2)])
    prompts = load(
        DataConfig(train_files=str(path), max_prompt_length=6, filter_overlong_prompts=True),
        tokenizer,
    )
    assert [p.id for p in prompts] == ["rows.jsonl:1", "rows.jsonl:3"]
    assert caplog.messages[0].endswith("2 longer than data.max_prompt_length=6 were dropped")


def test_cut_prompts_are_counted(jsonl, tokenizer, caplog):
    prompts = load(
        DataConfig(train_files=str(jsonl([words(9)])), max_prompt_length=3, truncation="left"),
        tokenizer,
    )
    assert prompts[0].token_ids == (5, 1, 3)
    assert caplog.messages[0].endswith("1 longer than data.max_prompt_length=3 were cut")


@pytest.mark.parametrize(
    ("lengths", "settings", "error", "named"),
    [
        ([1, 9], {"max_prompt_length": 6}, DataError, r"{path} row 1 \(line 2\): 12 tokens"),
        (
            [9, 7],
            {"max_prompt_length": 5, "filter_overlong_prompts": True},
            DataError,
            "2 prompts.*max_prompt_length=5.*10.*data.max_prompt_length",
        ),
        ([1], {"train_max_samples": 0}, ConfigError, r"data\.train_max_samples=0"),
        ([1], {"train_files": None}, ConfigError, r"data\.train_files: saw None"),
    ],
)
def test_what_leaves_nothing_to_train_on(jsonl, tokenizer, lengths, settings, error, named):
    path = jsonl(list(map(words, lengths)))
    with pytest.raises(error, match="(?s)" + named.replace("{path}", re.escape(str(path)))):
        load(DataConfig(**{"train_files": str(path), **settings}), tokenizer)


def test_max_samples_takes_the_first_rows_and_reads_no_further(jsonl, tokenizer):
    path = jsonl([words(1), words(2), {"prompt": 5}])
    assert len(load(DataConfig(train_files=str(path), train_max_samples=2), tokenizer)) == 2
    assert (
        len(load(DataConfig(val_files=str(path), val_max_samples=1), tokenizer, split="val")) == 1
    )
    with pytest.raises(ConfigError, match=r"data\.val_max_samples=0 keeps no row"):
        load(DataConfig(val_files=str(path), val_max_samples=0), tokenizer, split="val")


def test_no_files_named(tokenizer):
    with pytest.raises(ConfigError, match=r"data\.val_files: saw None"):
        load(DataConfig(), tokenizer, split="val")


def test_a_bad_row_names_its_file(jsonl, tokenizer):
    good, bad = jsonl([words(1)], "good.jsonl"), jsonl([words(1), {"prompt": 5}], "bad.jsonl")
    named = rf"(?s){re.escape(str(bad))}.*row 1 \(line 2\), column 'prompt': saw 5"
    with pytest.raises(DataError, match=named):
        load(DataConfig(train_files=[str(good), str(bad)]), tokenizer)


def test_slices_are_lists(jsonl, tokenizer):
    prompts = load(DataConfig(train_files=str(jsonl([words(i + 1) for i in range(5)]))), tokenizer)
    assert [p.id for p in prompts[1:4:2]] == ["rows.jsonl:1", "rows.jsonl:3"]


def test_a_prompt_that_ends_inside_a_thinking_block(jsonl, tokenizer):
    """The chat template writes the mark, or the row's last turn does."""
    tokenizer.add_tokens(["<think>", "</think>"])
    rows = [
        words(1),
        {"prompt": [{"role": "user", "content": "<think> a"}]},
        {"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>"}]},
    ]
    config = DataConfig(train_files=str(jsonl(rows)))
    assert [p.opens_thinking for p in load(config, tokenizer)] == [False, False, True]
    config.apply_chat_template_kwargs = {"thinking": "<think>"}
    assert [p.opens_thinking for p in load(config, tokenizer)][:2] == [True, True]
    config.apply_chat_template_kwargs = {"thinking": "<think> </think>"}
    assert [p.opens_thinking for p in load(config, tokenizer)][:2] == [False, False]
