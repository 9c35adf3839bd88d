"""PandaLM: which of two responses is better, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rmrl.rewards.catalogue.card import Card, Licence
from rmrl.rewards.catalogue.rows import prompt_file, question_of, verdicts
from rmrl.rewards.kinds.judge.asking import fill

CARD = Card(
    title="PandaLM",
    models={"pandalm-7b": "WeOpenML/PandaLM-7B-v1"},
    licence=Licence(
        "LLaMA License (of its base model)", "the first LLaMA's licence allows no commercial use"
    ),
    reads=(
        "instruction and two responses, in both orders; the first line of the answer is 1, 2 or"
        " Tie, reason and a reference answer follow"
    ),
    paper="https://arxiv.org/abs/2306.05087",
    source="https://github.com/WeOpenML/PandaLM (pandalm/utils/pandalm_inference.py, Apache-2.0)",
    tried=(
        "prompt word for word; reading on verdicts and reasons that the repository records of"
        " PandaLM-7B; not run with the weights. Its own pipeline uses 4 beams and a repetition"
        " penalty of 1.2, engines here write greedily; it counts an answer that cannot be read as a"
        " tie, here it has no verdict"
    ),
)
SPEC: dict[str, Any] = {
    "kind": "group",
    "fence": False,
    "sampling": {"max_tokens": 512, "temperature": 0.0},
}
_PROMPT = prompt_file(__file__)


def rm_preprocess(
    text_prompts: Sequence[Any],
    text_responses: Sequence[tuple[str, str]],
    tgt_tokenizer: Any,  # noqa: ARG001
) -> list[str]:
    """Plain text: the model has no chat template."""
    rows: list[str] = []
    for prompt, (first, second) in zip(text_prompts, text_responses, strict=True):
        values = {
            "instruction": question_of(prompt),
            "response_1": first.strip(),
            "response_2": second.strip(),
        }
        rows.append(fill(_PROMPT, values))
    return rows


def rm_postprocess(
    results: Sequence[str], responses: Sequence[tuple[str, str]]
) -> list[float | None]:
    """The first response's share of the point, from the first line alone."""
    heads = [text.strip().partition("\n")[0] for text in results]
    pattern = r"(?i)^(?P<score>1|2|tie)$"
    return verdicts(heads, responses, pattern, {"1": 1.0, "2": 0.0, "tie": 0.5})
