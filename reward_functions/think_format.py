"""Rule: 1 if the response thinks between <think> and </think>, once and first, and then says
something, else 0.

    reward.specs.think_format.arguments.answer=true     the rest must be one <answer>...</answer>
    reward.specs.think_format.arguments.opened=true     the chat template has written <think>
"""

import re

THINKING = re.compile(r"(?:(?!</?think>).)+</think>(?P<rest>.+)", re.DOTALL)
ANSWER = re.compile(r"\s*<answer>(?:(?!</?answer>).)+</answer>\s*", re.DOTALL)


def compute_score(
    data_source, solution_str, ground_truth, extra_info=None, answer=False, opened=False
):
    """The verdict."""
    text = solution_str.lstrip()
    if text.startswith("<think>"):
        text = text.removeprefix("<think>")
    elif not opened:
        return 0.0
    found = THINKING.fullmatch(text)
    if found is None or "think>" in found["rest"]:
        return 0.0
    if answer:
        return float(ANSWER.fullmatch(found["rest"]) is not None)
    return float(bool(found["rest"].strip()))
