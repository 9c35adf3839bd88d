"""What a reward model reads: every form a drop-in may return, and a sentence for every other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rmrl.errors import RewardFunctionError
from rmrl.rewards.dropin import DropIn, load_dropin
from rmrl.rewards.kinds.rendering import Rendered, checked_length, fill_in, postprocess, preprocess, tokenize
from rmrl.types import ScoreResult
from tests.rewards.parts import items

TURN = [{"role": "user", "content": "hi"}]


def read(value: Any, tokenizer: Any, *, generation_prompt: bool = True) -> Rendered:
    return tokenize(value, tokenizer, generation_prompt=generation_prompt, where="rm_preprocess of reward 'j'")


def dropin(folder: Path, code: str) -> DropIn:
    path = folder / "d.py"
    path.write_text(code, encoding="utf-8")
    return load_dropin(path, "d")


def test_a_string_is_taken_as_it_is(tokenizer: Any):
    rendered = read("ab", tokenizer)
    assert rendered.text == "ab"
    assert tokenizer.decode(rendered.token_ids) == "ab"


def test_token_ids_in_every_form(tokenizer: Any):
    ids = read("abc", tokenizer).token_ids
    forms = [list(ids), tuple(ids), np.asarray(ids), torch.tensor(ids), [np.int64(i) for i in ids], tokenizer("abc")]
    assert [read(form, tokenizer).token_ids for form in forms] == [ids] * len(forms)
    assert read(list(ids), tokenizer).text == "abc"
    assert all(type(i) is int for i in read(np.asarray(ids), tokenizer).token_ids)


def test_messages_go_through_the_chat_template(tokenizer: Any):
    assert read(TURN, tokenizer).text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    rendered = read(TURN, tokenizer, generation_prompt=False)
    assert rendered.text == "<|im_start|>user\nhi<|im_end|>\n"
    start = tokenizer.convert_tokens_to_ids("<|im_start|>")
    assert rendered.token_ids.count(start) == 1


def test_a_pair(tokenizer: Any):
    rendered = read(("ab", "c"), tokenizer)
    assert rendered.text == "ab\n---\nc"
    assert tokenizer.decode(rendered.token_ids) == "abc"


@pytest.mark.parametrize("value", [None, 3, 0.5, [], {}, [1.5], [True], ["a", "b"], ("a", "b", "c"), [{"role": "user"}], b"x"])
def test_anything_else_is_named(tokenizer: Any, value: Any):
    with pytest.raises(RewardFunctionError, match=r"rm_preprocess of reward 'j' returned .* as an input; give a string, token ids"):
        read(value, tokenizer)


def test_ids_that_no_token_has(tokenizer: Any):
    with pytest.raises(
        RewardFunctionError, match=rf"returned token id 99999, and the reward model's tokenizer has {len(tokenizer)} tokens"
    ):
        read([1, 99999], tokenizer)
    with pytest.raises(RewardFunctionError, match="token id -1"):
        read([1, -1], tokenizer)


def test_a_template_that_refuses(tokenizer: Any):
    with pytest.raises(
        RewardFunctionError, match=r"rm_preprocess of reward 'j': the chat template of .* refuses messages of the roles user, tool"
    ):
        read([*TURN, {"role": "tool", "content": "x"}], tokenizer)


def test_messages_without_a_template(tokenizer: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tokenizer, "chat_template", None)
    with pytest.raises(RewardFunctionError, match="messages need a chat template"):
        read(TURN, tokenizer)


def test_a_drop_in_gets_what_it_names(tokenizer: Any, tmp_path: Path):
    code = """
def rm_preprocess(text_prompts, text_responses, tgt_tokenizer, ground_truths, prompts):
    return [f"{p}|{r}|{g}|{m[0]['content']}" for p, r, g, m in zip(text_prompts, text_responses, ground_truths, prompts)]
def rm_postprocess(results, *, data_sources, extra_infos):
    return [(r, d, e) for r, d, e in zip(results, data_sources, extra_infos, strict=True)]
"""
    found = dropin(tmp_path, code)
    assert preprocess(found, items("a", "b", truth="42"), tokenizer) == ["Q|a|42|Q", "Q|b|42|Q"]
    assert postprocess(found, [1, 2], items("a", "b")) == [(1, "", {}), (2, "", {})]


def test_responses_reach_a_drop_in_without_special_tokens(tokenizer: Any, tmp_path: Path):
    code = "def rm_preprocess(p, r, t):\n    return r\ndef rm_postprocess(results):\n    return results\n"
    (text,) = preprocess(dropin(tmp_path, code), items("x<|im_end|>"), tokenizer)
    assert text == "x<\u200b|im_end|>"


@pytest.mark.parametrize("value", ["ab", b"ab", {"a": 1, "b": 2}, 0.5, None, iter([1, 2])])
def test_only_lists_are_one_per_response(value: Any):
    with pytest.raises(RewardFunctionError, match=r"f returned .*; a list with one score per response is needed"):
        checked_length(value, 2, what="f", noun="score")


def test_arrays_and_tuples_are_lists():
    assert checked_length((1, 2), 2, what="f", noun="score") == [1, 2]
    assert checked_length(np.array([1.5, 2.5]), 2, what="f", noun="score") == [1.5, 2.5]
    with pytest.raises(RewardFunctionError, match="f returned 1 scores for 2 responses"):
        checked_length([1], 2, what="f", noun="score")


def test_empty_inputs_are_filled_in():
    results = fill_in([Rendered("", ()), Rendered("a", (1,)), Rendered("", ())], [ScoreResult(value=1.0)])
    assert [(r.value, r.status) for r in results] == [(None, "user_error"), (1.0, "ok"), (None, "user_error")]
