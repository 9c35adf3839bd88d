"""xVerify: does a response answer the question as the reference does?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rmrl.rewards.catalogue.card import Card, Licence
from rmrl.rewards.catalogue.rows import prompt_file, reference_prompts, verdicts

CARD = Card(
    title="xVerify",
    models={
        "xverify-0.5b": "IAAR-Shanghai/xVerify-0.5B-I",
        "xverify-1b": "IAAR-Shanghai/xVerify-1B-I",
        "xverify-7b": "IAAR-Shanghai/xVerify-7B-I",
    },
    licence=Licence("CC-BY-NC-ND-4.0", "no commercial use, and no adapted versions"),
    reads="question, response and reference; Correct is 1, Incorrect is 0",
    paper="https://arxiv.org/abs/2504.10481",
    source=(
        "https://github.com/IAAR-Shanghai/xVerify (src/xVerify/eval.py, read in copies of that file"
        " by others, which agree); the licence is that of the card of xVerify-1B-I"
    ),
    tried=(
        "prompt and reading on answers in the form that the prompt asks for, as its cards record"
        " none; not run with the weights"
    ),
)
SPEC: dict[str, Any] = {
    "kind": "generative",
    "fence": False,
    "sampling": {"max_tokens": 32, "temperature": 0.0},
}
_PROMPT = prompt_file(__file__)


def rm_preprocess(
    text_prompts: Sequence[Any],
    text_responses: Sequence[str],
    tgt_tokenizer: Any,  # noqa: ARG001
    ground_truths: Sequence[Any],
) -> list[list[dict[str, str]]]:
    """One user turn."""
    rows = zip(text_prompts, text_responses, ground_truths, strict=True)
    texts = reference_prompts(
        _PROMPT, rows, question="question", response="output", reference="answer"
    )
    return [[{"role": "user", "content": text}] for text in texts]


def rm_postprocess(results: Sequence[str], responses: Sequence[str]) -> list[float | None]:
    """1 for Correct, 0 for Incorrect, None where neither is all that was written."""
    pattern = r"^\W*(?P<score>Correct|Incorrect)\W*$"
    return verdicts(results, responses, f"(?i){pattern}", {"Correct": 1.0, "Incorrect": 0.0})
