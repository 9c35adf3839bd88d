"""Rule: from 1 for an empty text down to 0 for one of LIMIT words."""

LIMIT = 120


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return max(0.0, 1 - len(solution_str.split()) / LIMIT)
