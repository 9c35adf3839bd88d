"""Exact match of short answers after SQuAD's normalization (Rajpurkar et al., 2016): lower case,
without punctuation and articles. Search-R1 and open-domain question answering are scored like this.
A minus sign and a decimal point are punctuation too, so numbers are for `gsm8k` and `math_equal`.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from typing import Any

from rmrl.rewards.answers.format import reference_text

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
_TARGET = "target"


def score(response: str, ground_truth: Any, tag: str = "answer") -> float:
    """Return 1.0 if the response's answer equals one of the references, else 0.0, as where it has
    no answer.

    `ground_truth`: a text, a list of texts, or {"target": either}. Raises ValueError where there is
    none. `tag`: see `extract_answer`.

    Example:
        >>> score("It is <answer>The Louvre.</answer>", {"target": ["louvre", "Musée du Louvre"]})
        1.0
    """
    answer = extract_answer(response, tag)
    wanted = {normalized(each) for each in references(ground_truth)}
    return float(answer is not None and normalized(answer) in wanted)


def extract_answer(response: str, tag: str = "answer") -> str | None:
    """Return what stands between the last <tag> and </tag>, None without them. "": the whole
    response."""
    if not tag:
        return response.strip()
    name = re.escape(tag)
    found = re.findall(f"<{name}>(.*?)</{name}>", response, re.DOTALL)
    return found[-1].strip() if found else None


def references(ground_truth: Any) -> list[str]:
    """Return the acceptable answers. Raises ValueError where there is none."""
    if isinstance(ground_truth, Mapping) and _TARGET in ground_truth:
        ground_truth = ground_truth[_TARGET]
    several: Sequence[Any] = [ground_truth]
    if isinstance(ground_truth, list | tuple):
        several = ground_truth
    texts = list(map(reference_text, several))
    if not texts:
        raise ValueError("the row's list of references is empty")
    return texts


def normalized(text: str) -> str:
    """Return the text in lower case, without ASCII punctuation, articles and double spaces."""
    words = text.lower().translate(_WITHOUT_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", words).split())
