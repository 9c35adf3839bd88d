"""Rule: 1 if the response's final answer equals the reference mathematically, else 0 (see
rmrl/rewards/answers/math_equal.py)."""

from rmrl.rewards.answers import math_equal


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    """The verdict; a reference that cannot be read raises and is no verdict."""
    return math_equal.score(solution_str, ground_truth)
