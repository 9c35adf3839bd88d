"""The reward functions that TRL ships, run as rules of rmrl: the numbers that TRL's own call gives."""

from __future__ import annotations

from typing import Any

import pytest

from rmrl import Rewards

PROMPT = [{"role": "user", "content": "What is 1/3?"}]
TEXTS = [r"<think>Easy.</think> It is \boxed{\frac{1}{3}}", r"Surely \boxed{\frac{1}{2}}, so so so"]
ANSWER = r"\frac{1}{3}"
OVERLONG = {"max_completion_len": 20, "soft_punish_cache": 10}
FUNCTIONS: dict[str, dict[str, Any]] = {
    "accuracy_reward": {},
    "reasoning_accuracy_reward": {},
    "think_format_reward": {},
    "get_cosine_scaled_reward": {"max_len": 100},
    "get_repetition_penalty_reward": {"ngram_size": 1},
    "get_soft_overlong_punishment": OVERLONG,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_reward_function_of_trl_gives_the_numbers_of_trl(name: str, smollm2: Any) -> None:
    rewards_of_trl = pytest.importorskip("trl.rewards")
    from transformers import AutoTokenizer

    arguments = FUNCTIONS[name]
    function = getattr(rewards_of_trl, name)
    if arguments:
        function = function(**arguments)
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    expected = function(
        completions=[[{"role": "assistant", "content": text}] for text in TEXTS],
        completion_ids=[tokenizer(text, add_special_tokens=False)["input_ids"] for text in TEXTS],
        solution=[ANSWER, ANSWER],
    )
    spec: dict[str, Any] = {"function": f"trl.rewards:{name}", "tokenizer": str(smollm2)}
    if arguments:
        spec["arguments"] = arguments
    section = {"models": ["theirs"], "rule_timeout_s": 60, "rule_workers": 1}
    config = {"reward": {**section, "specs": {"theirs": spec}}, "trainer": {"device": "cpu"}}
    with Rewards(config) as rewards:
        table = rewards.score([PROMPT, PROMPT], TEXTS, references=[ANSWER, ANSWER])
    assert list(table["detail_theirs"]) == ["", ""]
    assert list(table["score_theirs"]) == pytest.approx(expected)
    assert len(set(expected)) == 2
