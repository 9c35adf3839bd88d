"""1 for an empty response, 0 for one of 200 characters and more, a straight line between."""


def compute_score(data_source, solution_str, ground_truth):  # noqa: ARG001
    """Return a number from 0 to 1."""
    return max(0.0, 1 - len(solution_str) / 200)
