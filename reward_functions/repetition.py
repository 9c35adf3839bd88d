"""Rule: 0 for a response that repeats nothing, down to -1 for one that says the same few words over
and over: minus the share of its n-grams of words that stood there before (arXiv:2502.03373,
section 4.2).

reward.specs.repetition.arguments.n=3 is the length of an n-gram in words. A response with fewer
words gets 0.
"""


def compute_score(data_source, solution_str, ground_truth, extra_info=None, n=3):
    """The verdict."""
    words = solution_str.lower().split()
    grams = list(zip(*(words[start:] for start in range(n)), strict=False))
    if not grams:
        return 0.0
    return len(set(grams)) / len(grams) - 1.0
