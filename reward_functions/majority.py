"""Rule without a reference: 1 if the response's final answer is the one that most responses to the
prompt give, else 0 (TTRL, arXiv:2504.16084). Answers that share the first place all get 1, a
response without an answer 0, and a response that is alone with its prompt is skipped.

The answer is what \\boxed{} or <answer> holds last, else the last number. Equal mathematics is one
answer: 0.5 and \\frac{1}{2}. `share` is the part of the responses that give the response's answer.
"""

from contextlib import suppress

from rmrl.rewards.answers import exact_match, gsm8k, math_equal
from rmrl.rewards.answers.format import last_boxed

SPEC = {"none": "skipped"}


def compute_score(solution_strs):
    """One verdict per response to a prompt."""
    if len(solution_strs) < 2:
        return [None] * len(solution_strs)
    answers = [final_answer(text) for text in solution_strs]
    votes = {}
    for answer in answers:
        if answer is not None:
            same = next((other for other in votes if is_equal(answer, other)), answer)
            votes.setdefault(same, []).append(answer)
    counts = {answer: len(several) for several in votes.values() for answer in several}
    most = max(counts.values(), default=0)
    verdicts = []
    for answer in answers:
        count = counts.get(answer, 0)
        is_first = answer is not None and count == most
        share = count / len(answers)
        verdicts.append({"score": float(is_first), "share": share, "answer": answer or ""})
    return verdicts


def final_answer(text):
    """The answer as it is written, None without one."""
    return last_boxed(text) or exact_match.extract_answer(text) or gsm8k.extract_answer(text)


def is_equal(answer, other):
    """Whether two answers are one."""
    if answer == other:
        return True
    if not any(character.isdigit() for character in answer + other):
        return exact_match.normalized(answer) == exact_match.normalized(other)
    with suppress(Exception):  # sympy raises anything on what models write
        return math_equal.score(f"$\\boxed{{{answer}}}$", other) == 1.0
    return False
