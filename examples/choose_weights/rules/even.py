"""1 for a response with an even number of characters: a reward that is worth nothing."""


def compute_score(data_source, solution_str, ground_truth):  # noqa: ARG001
    """Return 0 or 1."""
    return 1.0 - len(solution_str) % 2
