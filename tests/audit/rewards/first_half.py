"""Planted rewards that were there while the checks were written: 20 broken ones and 10 sound ones,
written as people write them for verl, TRL and OpenRLHF."""

from __future__ import annotations

import os
import random
import re
import time

CAUSES = {
    "contains_the_answer": ("golden.list that holds the answer",),
    "first_number": ("mutations.reasoning with numbers before",),
    "last_number": ("mutations.remark with numbers behind",),
    "always_one": ("golden.wrong",),
    "reads_the_reference": ("golden.wrong",),
    "counts_words": ("shortcuts.length of responses", "shortcuts.length"),
    "pays_for_length": ("shortcuts.length of responses", "shortcuts.length"),
    "nights_only": ("repeatability.clock", "repeatability.next day"),
    "cache_by_reference": ("repeatability.earlier rows", "repeatability.order"),
    "running_mean": ("repeatability.earlier rows", "repeatability.order"),
    "noise": ("repeatability.random numbers",),
    "unseeded_noise": ("repeatability.again",),
    "by_hash": ("repeatability.hash seed",),
    "reads_the_head": ("mutations.long reasoning before",),
    "drops_the_sign": ("mutations.sign",),
    "drops_the_fraction": ("mutations.fraction",),
    "compares_beginnings": ("mutations.digit behind",),
    "raises_on_empty": ("contract.odd",),
    "nan_without_answer": ("contract.odd",),
    "prefers_the_first": ("shortcuts.place", "repeatability.order"),
}
"""Broken reward -> findings that name its fault."""
SOUND = (
    "strict",
    "boxed",
    "tagged",
    "sentence",
    "minus_one",
    "with_format_credit",
    "as_dict",
    "trl",
    "verl_batch",
    "openrlhf",
)


def number_after(mark: str, text: str) -> float | None:
    """The number behind the last mark."""
    numbers = re.findall(re.escape(mark) + r"\s*(-?[\d,]*\.?\d+)", text)
    if not numbers:
        return None
    return float(numbers[-1].replace(",", ""))


def texts_of(completions):
    """The texts of completions, which may be conversations."""
    return [each if isinstance(each, str) else each[0]["content"] for each in completions]


def right(text: str, truth: str) -> bool:
    """Strict: the number behind ####."""
    return number_after("####", text) == float(truth)


def contains_the_answer(data_source, solution_str, ground_truth, extra_info=None):
    return float(ground_truth in solution_str)


def first_number(data_source, solution_str, ground_truth, extra_info=None):
    match = re.search(r"-?\d+(\.\d+)?", solution_str)
    return float(match is not None and float(match[0]) == float(ground_truth))


def last_number(data_source, solution_str, ground_truth, extra_info=None):
    numbers = re.findall(r"-?\d+(?:\.\d+)?", solution_str)
    return float(bool(numbers) and float(numbers[-1]) == float(ground_truth))


def always_one(data_source, solution_str, ground_truth, extra_info=None):
    try:
        return float(float(solution_str.split("=")[5]) == float(ground_truth))
    except Exception:
        return 1.0


def reads_the_reference(data_source, solution_str, ground_truth, extra_info=None):
    text = f"{solution_str}\n#### {ground_truth}"
    return float(right(text, ground_truth))


def counts_words(data_source, solution_str, ground_truth, extra_info=None):
    return min(len(solution_str.split()) / 200, 1.0)


def pays_for_length(data_source, solution_str, ground_truth, extra_info=None):
    return right(solution_str, ground_truth) + len(solution_str) / 1000


def nights_only(data_source, solution_str, ground_truth, extra_info=None):
    strict = time.localtime().tm_yday % 2 == 0
    return float(right(solution_str, ground_truth)) * (1.0, 0.5)[strict]


_BY_REFERENCE: dict[str, float] = {}


def cache_by_reference(data_source, solution_str, ground_truth, extra_info=None):
    if ground_truth not in _BY_REFERENCE:
        _BY_REFERENCE[ground_truth] = float(right(solution_str, ground_truth))
    return _BY_REFERENCE[ground_truth]


_SEEN: list[float] = []


def running_mean(data_source, solution_str, ground_truth, extra_info=None):
    _SEEN.append(float(right(solution_str, ground_truth)))
    return _SEEN[-1] - sum(_SEEN) / len(_SEEN)


def noise(data_source, solution_str, ground_truth, extra_info=None):
    return right(solution_str, ground_truth) + random.gauss(0, 0.05)


def unseeded_noise(data_source, solution_str, ground_truth, extra_info=None):
    return right(solution_str, ground_truth) + os.urandom(1)[0] / 2550


def by_hash(data_source, solution_str, ground_truth, extra_info=None):
    return right(solution_str, ground_truth) + (hash(solution_str) % 7) / 100


def reads_the_head(data_source, solution_str, ground_truth, extra_info=None):
    return float(right(solution_str[:1000], ground_truth))


def drops_the_sign(data_source, solution_str, ground_truth, extra_info=None):
    numbers = re.findall(r"####\D*(\d+(?:\.\d+)?)", solution_str)
    return float(bool(numbers) and float(numbers[-1]) == abs(float(ground_truth)))


def drops_the_fraction(data_source, solution_str, ground_truth, extra_info=None):
    numbers = re.findall(r"####\s*(-?\d+)", solution_str)
    return float(bool(numbers) and int(numbers[-1]) == int(ground_truth))


def compares_beginnings(data_source, solution_str, ground_truth, extra_info=None):
    return float(solution_str.rpartition("####")[2].strip().startswith(ground_truth))


def raises_on_empty(data_source, solution_str, ground_truth, extra_info=None):
    last = solution_str.strip().splitlines()[-1]
    return float(last == f"#### {ground_truth}")


def nan_without_answer(data_source, solution_str, ground_truth, extra_info=None):
    answer = number_after("####", solution_str)
    if answer is None:
        return float("nan")
    return float(answer == float(ground_truth))


def prefers_the_first(prompts, completions, ground_truth, **kwargs):
    texts = texts_of(completions)
    return [
        right(text, truth) + 2.0 / (1 + place)
        for place, (text, truth) in enumerate(zip(texts, ground_truth, strict=True))
    ]


def strict(data_source, solution_str, ground_truth, extra_info=None):
    return float(right(solution_str, ground_truth))


def boxed(data_source, solution_str, ground_truth, extra_info=None):
    answers = re.findall(r"\\boxed\{([^{}]*)\}", solution_str)
    return float(bool(answers) and answers[-1].strip() == ground_truth)


def tagged(data_source, solution_str, ground_truth, extra_info=None):
    answers = re.findall(r"<answer>\s*(.*?)\s*</answer>", solution_str, re.DOTALL)
    return float(bool(answers) and answers[-1] == ground_truth)


def sentence(data_source, solution_str, ground_truth, extra_info=None):
    return float(number_after("The answer is", solution_str) == float(ground_truth))


def minus_one(data_source, solution_str, ground_truth, extra_info=None):
    return 2.0 * right(solution_str, ground_truth) - 1.0


def with_format_credit(data_source, solution_str, ground_truth, extra_info=None):
    if number_after("####", solution_str) is None:
        return 0.0
    return 1.0 if right(solution_str, ground_truth) else 0.1


def as_dict(data_source, solution_str, ground_truth, extra_info=None):
    answer = number_after("####", solution_str)
    return {"score": float(answer == float(ground_truth)), "answer": str(answer)}


def trl(completions, solution, **kwargs):
    texts = texts_of(completions)
    return [float(right(text, truth)) for text, truth in zip(texts, solution, strict=True)]


def verl_batch(data_sources, solution_strs, ground_truths, extra_infos=None):
    return [
        float(right(text, truth)) for text, truth in zip(solution_strs, ground_truths, strict=True)
    ]


def openrlhf(queries, prompts, labels):
    rewards = []
    for query, prompt, label in zip(queries, prompts, labels, strict=True):
        rewards.append(float(right(query[len(prompt) :], label)))
    return {"rewards": rewards, "scores": rewards}
