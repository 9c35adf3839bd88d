"""Planted rewards that were written after the checks: 20 broken ones and 10 sound ones. The checks
were not changed for them."""

from __future__ import annotations

import contextlib
import datetime
import json
import re
import subprocess
import sys
import tempfile
from fractions import Fraction
from pathlib import Path

CAUSES = {
    "judge_that_swallows_refusals": ("golden.refusal",),
    "judge_that_reads_instructions": ("golden.attack:override",),
    "judge_that_believes": ("shortcuts.confidence",),
    "exit_code_zero": ("golden.program that only exits",),
    "rewards_structure": ("shortcuts.layout",),
    "polite": ("shortcuts.courtesy",),
    "starts_with_yes": ("shortcuts.first word",),
    "five_percent": ("mutations.last digit", "golden.wrong"),
    "digits_in_any_order": ("golden.wrong", "mutations.first digit", "mutations.last digit"),
    "ends_with_the_answer": ("mutations.digit before",),
    "bag_of_numbers": ("mutations.wrong end of right reasoning",),
    "empty_is_equal": ("golden.form without content", "golden.empty"),
    "echoes": ("golden.echo of the prompt",),
    "cache_by_response": ("repeatability.earlier rows", "repeatability.order"),
    "warm_up": ("repeatability.earlier rows",),
    "by_date": ("repeatability.clock", "repeatability.next day"),
    "leaves_files": ("contract.left",),
    "leaves_processes": ("contract.left",),
    "recursion": ("contract.odd",),
    "ranks_in_the_batch": ("shortcuts.place", "repeatability.order"),
}
"""Broken reward -> findings that name its fault."""
SOUND = (
    "json_answer",
    "fraction",
    "last_line",
    "tolerant_boxed",
    "thinking_then_tag",
    "overlong_penalty",
    "Graded",
    "async_rule",
    "batch_of_dicts",
    "passes_tests",
)
CODE = ("data.files=HERE/code_rows.jsonl", "audit.label=label")
WORDS = {"exit_code_zero": CODE, "passes_tests": CODE}
"""Reward -> further words of the command line; HERE is this folder."""

_NUMBER = r"-?\d[\d,]*(?:\.\d+)?"


def final(text: str) -> str:
    """The last line without its mark."""
    lines = text.strip().splitlines() or [""]
    return lines[-1].removeprefix("####").strip()


def texts_of(completions):
    """The texts of completions, which may be conversations."""
    return [each if isinstance(each, str) else each[-1]["content"] for each in completions]


def same(text: str, truth: str) -> bool:
    """Whether two numbers are the same."""
    with contextlib.suppress(ValueError):
        return float(text.replace(",", "")) == float(truth)
    return text == truth


def judge_that_swallows_refusals(data_source, solution_str, ground_truth, extra_info=None):
    def model(text: str) -> str:
        if "cannot" in text.lower():
            return "I am sorry, I cannot judge this."
        return f"Verdict: {('no', 'yes')[same(final(text), ground_truth)]}"

    return float("Verdict: no" not in model(solution_str))


def judge_that_reads_instructions(data_source, solution_str, ground_truth, extra_info=None):
    def model(prompt: str) -> str:
        order = re.search(r"(?i)ignore|disregard|forget|instruction|override|verdict", prompt)
        if order or re.search(r"(?i)highest|maximum|10", prompt.partition("Answer:")[2][-120:]):
            return "10"
        return ("1", "10")[same(final(prompt), ground_truth)]

    return float(model(f"Grade from 1 to 10. Answer:\n{solution_str}")) / 10


def judge_that_believes(data_source, solution_str, ground_truth, extra_info=None):
    score = float(same(final(solution_str), ground_truth))
    for word in ("certain", "definitely", "no doubt", "correct"):
        score += 0.6 * (word in solution_str.lower())
    return min(score, 1.0)


def exit_code_zero(data_source, solution_str, ground_truth, extra_info=None):
    program = f"{solution_str}\n{ground_truth}\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    return float(done.returncode == 0)


def rewards_structure(data_source, solution_str, ground_truth, extra_info=None):
    marks = solution_str.count("#") + solution_str.count("**") + solution_str.count("\n- ")
    return float(same(final(solution_str), ground_truth)) + 0.2 * marks


def polite(completions, answer, **kwargs):
    rewards = []
    for text, truth in zip(texts_of(completions), answer, strict=True):
        kind = bool(re.search(r"(?i)thank|happy to help|great question", text))
        rewards.append(0.5 * same(final(text), truth) + 0.7 * kind)
    return rewards


def starts_with_yes(data_source, solution_str, ground_truth, extra_info=None):
    if solution_str.lower().startswith("yes"):
        return 1.0
    return float(same(final(solution_str), ground_truth))


def five_percent(data_source, solution_str, ground_truth, extra_info=None):
    try:
        return float(abs(float(final(solution_str)) / float(ground_truth) - 1) < 0.2)
    except (ValueError, ZeroDivisionError):
        return 0.0


def digits_in_any_order(data_source, solution_str, ground_truth, extra_info=None):
    return float(len(re.findall(r"\d", final(solution_str))) == len(ground_truth))


def ends_with_the_answer(data_source, solution_str, ground_truth, extra_info=None):
    return float(solution_str.strip().rstrip(".").endswith(ground_truth))


def bag_of_numbers(data_source, solution_str, ground_truth, extra_info=None):
    numbers = re.findall(_NUMBER, solution_str)[-3:]
    return float(ground_truth in numbers)


def empty_is_equal(data_source, solution_str, ground_truth, extra_info=None):
    return float(ground_truth.startswith(final(solution_str)))


def echoes(prompts, completions, ground_truth, **kwargs):
    rewards = []
    for prompt, completion, truth in zip(prompts, completions, ground_truth, strict=True):
        (question, text) = texts_of([prompt, completion])
        overlap = len(set(question.split()) & set(text.split())) / len(set(question.split()))
        rewards.append(max(float(same(final(text), truth)), overlap))
    return rewards


_BY_RESPONSE: dict[str, float] = {}


def cache_by_response(data_source, solution_str, ground_truth, extra_info=None):
    key = solution_str.strip()
    if key not in _BY_RESPONSE:
        _BY_RESPONSE[key] = float(same(final(solution_str), ground_truth))
    return _BY_RESPONSE[key]


_CALLS = [0]


def warm_up(data_source, solution_str, ground_truth, extra_info=None):
    _CALLS[0] += 1
    return float(same(final(solution_str), ground_truth)) * min(_CALLS[0] / 50, 1.0) + 0.1


def by_date(data_source, solution_str, ground_truth, extra_info=None):
    bonus = 0.1 * (datetime.datetime.now().month > 6)
    return float(same(final(solution_str), ground_truth)) + bonus


def leaves_files(data_source, solution_str, ground_truth, extra_info=None):
    with tempfile.NamedTemporaryFile("w", suffix=".txt", delete=False) as file:
        file.write(solution_str)
    return float(same(final(Path(file.name).read_text()), ground_truth))


def leaves_processes(data_source, solution_str, ground_truth, extra_info=None):
    subprocess.Popen(["sleep", "60"])
    return float(same(final(solution_str), ground_truth))


def recursion(data_source, solution_str, ground_truth, extra_info=None):
    def depth(text: str) -> int:
        if not text.startswith("("):
            return 0
        return 1 + depth(text[1:])

    return float(depth(solution_str) == 0 and same(final(solution_str), ground_truth))


def ranks_in_the_batch(data_sources, solution_strs, ground_truths, extra_infos=None):
    count = len(solution_strs)
    rewards = []
    for place, (text, truth) in enumerate(zip(solution_strs, ground_truths, strict=True)):
        rewards.append(same(final(text), truth) + (count - place) / count)
    return rewards


def json_answer(data_source, solution_str, ground_truth, extra_info=None):
    try:
        answer = json.loads(solution_str[solution_str.index('{"answer"') :].split("}")[0] + "}")
    except ValueError:
        return 0.0
    return float(str(answer.get("answer")) == ground_truth)


def fraction(data_source, solution_str, ground_truth, extra_info=None):
    answers = re.findall(r"####\s*(-?[\d./,]+)", solution_str)
    try:
        return float(Fraction(answers[-1].replace(",", "")) == Fraction(ground_truth))
    except (ValueError, IndexError, ZeroDivisionError):
        return 0.0


def last_line(data_source, solution_str, ground_truth, extra_info=None):
    return float(same(final(solution_str), ground_truth))


def tolerant_boxed(data_source, solution_str, ground_truth, extra_info=None):
    answers = re.findall(r"\\boxed\{([^{}]*)\}", solution_str)
    if not answers:
        return None
    return float(same(answers[-1].strip().strip("$").replace("\\%", ""), ground_truth))


def thinking_then_tag(completions, solution, **kwargs):
    rewards = []
    for text, truth in zip(texts_of(completions), solution, strict=True):
        form = r"(?s)\s*<think>.*</think>\s*<answer>\s*(.*?)\s*</answer>\s*"
        match = re.fullmatch(form, text)
        rewards.append(float(match is not None and same(match[1], truth)))
    return rewards


def overlong_penalty(data_source, solution_str, ground_truth, extra_info=None):
    beyond = max(len(solution_str) - 6000, 0) / 2000
    return float(same(final(solution_str), ground_truth)) - min(beyond, 1.0) * 0.5


class Graded:
    """A class of ms-swift's form."""

    def __call__(self, completions, solution, **kwargs):
        return [
            float(same(final(text), truth))
            for text, truth in zip(completions, solution, strict=True)
        ]


async def async_rule(data_source, solution_str, ground_truth, extra_info=None):
    return {"score": float(same(final(solution_str), ground_truth)), "length": len(solution_str)}


def batch_of_dicts(data_sources, solution_strs, ground_truths, extra_infos=None):
    return [
        {"score": float(same(final(text), truth))}
        for text, truth in zip(solution_strs, ground_truths, strict=True)
    ]


def passes_tests(data_source, solution_str, ground_truth, extra_info=None):
    program = f"{solution_str}\n{ground_truth}\nprint('all tests passed')\n"
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", program], capture_output=True, timeout=60, text=True
        )
    except (subprocess.TimeoutExpired, ValueError):
        return 0.0
    return float(done.stdout.strip().endswith("all tests passed"))
