"""How close the answer is: 1 when right, 0 when off by ten or more or when there is no number."""

import re


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    numbers = re.findall(r"-?\d+", solution_str)
    if not numbers:
        return 0.0
    return max(0.0, 1.0 - abs(int(numbers[-1]) - int(ground_truth)) / 10)
