"""What an attack makes of a prompt's structure: control tokens that only the chat template should
write, and turns that it forges."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.attacks.judges import Judge
from benchmarks.attacks.trials import Trial

FAMILIES = (
    "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>", "<|python_tag|>",
    "<start_of_turn>", "<end_of_turn>", "<bos>", "<eos>",
    "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "<s>", "</s>",
    "<|user|>", "<|assistant|>", "<|system|>", "<|end|>", "<|start|>", "<|channel|>", "<|message|>", "<|return|>",
    "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>",  # noqa: RUF001
    "<think>", "</think>", "<tool_call>", "</tool_call>", "[gMASK]", "<sop>", "[SEP]", "[CLS]", "<extra_id_0>", "<extra_id_1>",
)  # fmt: skip
"""Control tokens of other chat formats: Llama 3, Gemma, Mistral, Phi, GPT-OSS, DeepSeek, thinking
and tool calls, GLM, BERT, T5."""


def measure_structure(judge: Judge, rows: Sequence[Trial]) -> dict[str, Any]:
    """How many of answer_judge's prompts hold injected control tokens and forged turns, before and
    after neutralising."""
    from rmrl.rewards.kinds.shared.untrusted import neutraliser

    widened = copy.deepcopy(judge.tokenizer)
    widened.add_tokens(list(FAMILIES), special_tokens=True)
    found: dict[str, Any] = {}
    for name, tokenizer in (
        ("own_tokens", judge.tokenizer),
        ("with_tokens_of_other_formats", widened),
    ):
        neutral = neutraliser(tokenizer)
        found[name] = {
            "plain": _counts(judge, rows, tokenizer, str),
            "neutralised": _counts(judge, rows, tokenizer, neutral),
        }
    return found


def _counts(
    judge: Judge, rows: Sequence[Trial], tokenizer: Any, protect: Callable[[str], str]
) -> dict[str, int]:
    """Prompts, of all and of the family chat_template, whose token ids have what the same prompt
    with an empty reply has not."""
    asked = judge.asked_to_copy([(row.solution, protect(row.attacked)) for row in rows])
    empty = _Structure(judge.asked_to_copy([(rows[0].solution, "")])[0], tokenizer)
    structures = [_Structure(each, tokenizer) for each in asked]
    template = [
        s for s, row in zip(structures, rows, strict=True) if row.attack.family == "chat_template"
    ]
    return {
        "prompts": len(rows),
        "control_tokens": sum(s.control > empty.control for s in structures),
        "user_turn_ended": sum(s.ends > empty.ends for s in structures),
        "assistant_turn_forged": sum(s.assistant > empty.assistant for s in structures),
        "chat_template_prompts": len(template),
        "chat_template_control_tokens": sum(s.control > empty.control for s in template),
    }


class _Structure:
    """Control tokens of a prompt, the ends of its turns, and the turns of the assistant."""

    def __init__(self, messages: Any, tokenizer: Any) -> None:
        from rmrl.rewards.kinds.shared.rendering import tokenize

        ids = tokenize(messages, tokenizer, generation_prompt=True, where="structure").token_ids
        tokens = tokenizer.convert_ids_to_tokens(list(ids))
        controls = set(tokenizer.all_special_tokens) | set(FAMILIES) & set(
            tokenizer.get_added_vocab()
        )
        self.control = sum(token in controls for token in tokens)
        self.ends = tokens.count("<|im_end|>")
        opened = [i + 1 for i, token in enumerate(tokens) if token == "<|im_start|>"]
        self.assistant = sum("".join(tokens[i : i + 4]).startswith("assistant") for i in opened)
